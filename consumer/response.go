package consumer

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"

	"github.com/hooklatch/hooklatch/inbox"
)

const (
	readAnswer    = 64 << 10 // of an answer, so that its connection can be used again
	longestHeader = 64 << 10 // of an answer
	// seenAnswer is what is looked at for credentials: one that begins within what is
	// kept ends here, but for giants.
	seenAnswer = 2 * keptAnswer
)

// answer reads the start of what the app said, with nothing in it that it must not
// have said.
func (w *Forwarder) answer(resp *http.Response, sent http.Header) []byte {
	// The status has decided; an answer that breaks off later changes nothing.
	text, _ := io.ReadAll(io.LimitReader(resp.Body, seenAnswer))
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, readAnswer-seenAnswer))
	text = w.redact(text, sent)
	return text[:min(len(text), keptAnswer)]
}

// statusPattern is what Responses are found by.
var statusPattern = regexp.MustCompile(`^[2-5](xx|[0-9]{2})$`)

func checkResponses(responses map[string]inbox.Outcome) error {
	for _, status := range slices.Sorted(maps.Keys(responses)) {
		if !statusPattern.MatchString(status) {
			return fmt.Errorf("consumer: Responses: %q is neither a status such as 404 nor a class such as 4xx", status)
		}
		switch o := responses[status]; o {
		case inbox.OutcomeAccepted, inbox.OutcomeRetry, inbox.OutcomeBlocked:
		default:
			return fmt.Errorf("consumer: Responses: %s is to be outcome %d, which is none of accepted, retry and blocked", status, o)
		}
	}
	return nil
}

// outcome is what a status means: as Responses say, of the status before its class,
// else as usual.
func (w *Forwarder) outcome(status int) inbox.Outcome {
	for _, key := range []string{strconv.Itoa(status), strconv.Itoa(status/100) + "xx"} {
		if o, ok := w.responses[key]; ok {
			return o
		}
	}
	switch {
	case status >= 200 && status <= 299:
		return inbox.OutcomeAccepted
	case status == 408, status == 425, status == 429, status >= 500:
		return inbox.OutcomeRetry
	}
	return inbox.OutcomeBlocked
}

// judge turns an answer into nil or what becomes of the forward.
func (w *Forwarder) judge(resp *http.Response) error {
	status := resp.StatusCode
	outcome := w.outcome(status)
	if outcome == inbox.OutcomeAccepted {
		return nil
	}
	failed := &AttemptError{Status: status, Permanent: outcome == inbox.OutcomeBlocked, Err: fmt.Errorf("answered %d", status)}
	switch {
	case failed.Permanent && status < 300:
		failed.Err = fmt.Errorf("answered %d, which is to be blocked", status)
	case !failed.Permanent && (status == 429 || status == 503):
		failed.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), w.now())
	case status >= 300 && status <= 399:
		if to, err := resp.Location(); err == nil {
			failed.Err = fmt.Errorf("answered %d, a redirect to %s that is not followed", status, to.Host)
		}
	}
	return failed
}
