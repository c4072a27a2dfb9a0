package proxy

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/verify"
)

// The refusals that the proxy finds itself.
var (
	errShuttingDown  = errors.New("shutting down")
	errHost          = errors.New("host is not served")
	errPath          = errors.New("no source has this path")
	errMethod        = errors.New("method is not POST")
	errTooManyFields = errors.New("too many header fields")
	errTooLarge      = errors.New("body is larger than the cap")
	errOverloaded    = errors.New("no slot or bytes free")
	errBodyTimeout   = errors.New("body arrives too slowly")
	errBodyMalformed = errors.New("body cannot be read")
	errNotJSON       = errors.New("body is not JSON")
	errType          = errors.New("event type is not allowed")
	errConflict      = errors.New("delivery id is stored with other bytes")
	errPanic         = errors.New("panic")
)

// problem is one line of the catalogue: the errors that end in it, and what the
// sender reads then.
type problem struct {
	code string // public and stable; a refusal of verify names its code itself
	errs []error

	status        int
	title, detail string
	retryable     bool
	retryAfter    [2]int    // bounds of Retry-After, in seconds; zero: none
	header        [2]string // one more header

	own    func(*ack) int                        // the source's own status; 0: none
	hint   func(*exchange) string                // a better detail; "": none
	extend func(x *exchange, json []byte) []byte // further members
}

// catalogue joins errors, codes, statuses and public texts; nothing else decides
// what a sender is told. The first line that fits an error answers. Our own
// trouble is 503 or 500, never 4xx: some senders switch a hook off after one 4xx.
var catalogue = [...]problem{
	{
		code: "header_missing", status: 400, title: "A header is missing",
		detail: "A header that the signature scheme needs is absent or empty.",
		extend: (*exchange).extendHeader,
	}, {
		code: "header_duplicated", status: 400, title: "A header is repeated",
		detail: "A header that the signature scheme needs is there more than once, perhaps in its spelling with underscores.",
		extend: (*exchange).extendHeader,
	}, {
		code: "header_invalid", status: 400, title: "The header is not acceptable",
		detail: "The request has more than 128 header fields.",
		errs:   []error{errTooManyFields},
	}, {
		code: "delivery_id_invalid", status: 400, title: "The delivery id is malformed",
		detail: "The delivery id has characters or a length that the signature scheme does not allow.",
	}, {
		code: "timestamp_malformed", status: 400, title: "The timestamp is malformed",
		detail: "The timestamp is not spelled as the signature scheme demands.",
		hint:   (*exchange).hintMilliseconds,
	}, {
		code: "body_malformed", status: 400, title: "The body cannot be read",
		detail: "The body ended early, or its framing is wrong.",
		errs:   []error{errBodyMalformed},
	}, {
		code: "body_not_json", status: 400, title: "The body is not JSON",
		detail: "This source takes bodies of one JSON value in UTF-8, not compressed.",
		errs:   []error{errNotJSON},
	}, {
		code: "type_not_allowed", status: 400, title: "The event type is not allowed",
		detail: "This source takes certain event types, and the delivery has none of them.",
		errs:   []error{errType},
	}, {
		code: "signature_invalid", status: 401, title: "The signature is not valid",
		detail: "No accepted key gives this signature over the request as it arrived.",
		header: [2]string{"Www-Authenticate", "Webhook-Signature"},
		own:    func(a *ack) int { return a.refusalStatus },
	}, {
		code: "handshake_refused", status: 403, title: "The handshake is refused",
		detail: "The challenge is not acceptable, or its token is not the one agreed on, or no secret is expected now.",
	}, {
		code: "timestamp_out_of_window", status: 401, title: "The timestamp is out of the window",
		detail:    "The signed timestamp is too far from the time of this server. Sign the request again with the present time.",
		retryable: true,
		header:    [2]string{"Www-Authenticate", "Webhook-Signature"},
		extend:    (*exchange).extendWindow,
	}, {
		code: "source_unknown", status: 404, title: "Nothing is here",
		detail: "No source has exactly this path.",
		errs:   []error{errPath},
	}, {
		code: "method_not_allowed", status: 405, title: "The method is not allowed",
		detail: "Webhooks are sent by POST.",
		errs:   []error{errMethod},
		header: [2]string{"Allow", "POST"},
	}, {
		code: "body_timeout", status: 408, title: "The body came too slowly",
		detail: "The body did not arrive in time.", retryable: true,
		errs: []error{errBodyTimeout},
	}, {
		code: "delivery_conflict", status: 409, title: "The delivery id is taken",
		detail: "This delivery id was received before with another body. The first body stays.",
		errs:   []error{errConflict},
		own:    func(a *ack) int { return a.conflictStatus },
		extend: func(x *exchange, b []byte) []byte {
			return appendJSON(append(b, `,"delivery_id":`...), x.result.DeliveryID)
		},
	}, {
		code: "body_too_large", status: 413, title: "The body is too large",
		detail: "The body is larger than this source takes.",
		errs:   []error{errTooLarge},
		extend: func(x *exchange, b []byte) []byte {
			if x.result.BodyLimit == 0 {
				return b // a verifier's own cap
			}
			return strconv.AppendInt(append(b, `,"max_bytes":`...), x.result.BodyLimit, 10)
		},
	}, {
		code: "host_not_allowed", status: 421, title: "The host is not served here",
		detail: "This server does not answer for the host that the request names.",
		errs:   []error{errHost},
	}, {
		code: "rate_limited", status: 429, title: "Too many requests",
		detail: "Challenges are answered a few times a minute.", retryable: true,
		errs: []error{errKeyedAnswers}, retryAfter: [2]int{60, 60},
		extend: func(_ *exchange, b []byte) []byte { return append(b, `,"scope":"source"`...) },
	}, {
		code: "store_unavailable", status: 503, title: "The store is unavailable",
		detail: "The delivery was not stored. Send it again.", retryable: true,
		errs: []error{inbox.ErrUnavailable}, retryAfter: [2]int{5, 10},
	}, {
		code: "store_busy", status: 503, title: "The store is busy",
		detail: "The delivery was not stored. Send it again.", retryable: true,
		errs: []error{inbox.ErrBusy}, retryAfter: [2]int{1, 1},
	}, {
		code: "store_full", status: 503, title: "The store is full",
		detail: "The delivery was not stored. Send it again later.", retryable: true,
		errs: []error{inbox.ErrFull}, retryAfter: [2]int{60, 60},
	}, {
		code: "overloaded", status: 503, title: "The server is overloaded",
		detail: "The request was not looked at. Send it again.", retryable: true,
		errs: []error{errOverloaded, errConfirm}, retryAfter: [2]int{1, 5},
	}, {
		code: "shutting_down", status: 503, title: "The server is shutting down",
		detail: "The request was not looked at. Send it again over a new connection.", retryable: true,
		errs: []error{errShuttingDown}, retryAfter: [2]int{1, 5},
	}, {
		code: "upstream_unreachable", status: 502, title: "The app cannot be reached",
		detail: "The app behind this server refused the connection or ended it without an answer.", retryable: true,
		errs: []error{errUpstream},
	}, {
		code: "upstream_timeout", status: 504, title: "The app does not answer",
		detail: "The app behind this server did not answer in time.", retryable: true,
		errs: []error{errUpstreamTimeout},
	}, {
		code: "internal", status: 500, title: "Internal fault",
		detail: "The delivery was not stored, because of a fault on this side.", retryable: true,
		errs: []error{inbox.ErrInternal, errPanic},
	}, {
		// After the lines above: their errors may wrap the end of a context too.
		code: "store_outcome_unknown", status: 503, title: "The outcome is unknown",
		detail: "The delivery may have been stored. Send it again: a repeat does no harm.", retryable: true,
		errs: []error{inbox.ErrOutcomeUnknown, context.DeadlineExceeded, context.Canceled}, retryAfter: [2]int{5, 10},
	},
}

// Codes returns the codes of all refusals, sorted: the closed list of what senders
// are told.
func Codes() []string {
	var codes []string
	for _, reason := range verify.Reasons() {
		codes = append(codes, reason.Code())
	}
	for _, p := range catalogue {
		codes = append(codes, p.code)
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// problemOf finds the line of an error. An error that nobody foresaw is a fault
// of ours, but a refusal of verify is never one: at worst it is the shared 401.
func problemOf(err error) *problem {
	code, other := "", "internal"
	var refused *verify.Error
	if errors.As(err, &refused) {
		code, other = refused.Reason.Code(), "signature_invalid"
	}
	for i := range catalogue {
		p := &catalogue[i]
		if p.code == code {
			return p
		}
		for _, e := range p.errs {
			if code == "" && errors.Is(err, e) {
				return p
			}
		}
	}
	for i := range catalogue {
		if catalogue[i].code == other {
			return &catalogue[i]
		}
	}
	panic("proxy: the catalogue lacks " + other) // a test walks it
}

// refuse answers with the problem of err, unless the answer has begun.
func (x *exchange) refuse(err error) {
	p := problemOf(err)
	res := &x.result
	res.Code, res.Reason, res.Status = p.code, p.code, p.status
	res.note(err)
	switch {
	case x.passed: // no source's, whatever it was
	case errors.Is(err, errConflict):
		res.Outcome = OutcomeConflict
	case p.status >= 500:
		res.Outcome = OutcomeUnavailable
	default:
		res.Outcome = OutcomeRefused
	}
	if x.source != nil && p.own != nil && p.own(&x.source.ack) != 0 {
		res.Status = p.own(&x.source.ack)
	}
	if x.answered {
		return
	}
	id := res.RequestID.String()
	retryAfter := 0
	if p.retryAfter[0] > 0 {
		// Jittered, so that refused senders do not come back together.
		retryAfter = p.retryAfter[0] + rand.N(p.retryAfter[1]-p.retryAfter[0]+1)
	}
	x.out = x.appendProblem(x.out[:0], p, id, retryAfter)

	h := x.w.Header()
	if retryAfter > 0 {
		h["Retry-After"] = []string{strconv.Itoa(retryAfter)}
	}
	if name := p.header[0]; name != "" && res.Status == p.status {
		h[name] = []string{p.header[1]}
	}
	x.answer(id, res.Status, x.p.lines.problem, errors.Is(err, errShuttingDown))
}

// appendProblem writes the answer's body: fixed texts, numbers, and names that
// the configuration gave. Nothing that was received is in it but a delivery id
// that has verified.
func (x *exchange) appendProblem(b []byte, p *problem, id string, retryAfter int) []byte {
	detail := p.detail
	if p.hint != nil {
		if h := p.hint(x); h != "" {
			detail = h
		}
	}
	b = append(b, `{"type":"urn:hooklatch:problem:`...)
	for _, c := range []byte(p.code) {
		if c == '_' {
			c = '-'
		}
		b = append(b, c)
	}
	b = append(b, `","title":`...)
	b = appendJSON(b, p.title)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(x.result.Status), 10)
	b = append(b, `,"detail":`...)
	b = appendJSON(b, detail)
	b = append(b, `,"instance":"urn:hooklatch:request:`...)
	b = append(b, id...)
	b = append(b, `","code":"`...)
	b = append(b, p.code...)
	b = append(b, `","retryable":`...)
	b = strconv.AppendBool(b, p.retryable)
	if retryAfter > 0 {
		b = append(b, `,"retry_after_s":`...)
		b = strconv.AppendInt(b, int64(retryAfter), 10)
	}
	if p.extend != nil {
		b = p.extend(x, b)
	}
	return append(b, "}\n"...)
}

func (x *exchange) extendHeader(b []byte) []byte {
	return appendJSON(append(b, `,"header":`...), x.result.Field)
}

func (x *exchange) extendWindow(b []byte) []byte {
	if x.source == nil {
		return b // no source of ours: see Refuse
	}
	b = strconv.AppendInt(append(b, `,"server_time":`...), x.source.now().Unix(), 10)
	return strconv.AppendInt(append(b, `,"tolerance_s":`...), int64(window(x.verifier)/time.Second), 10)
}

// hintMilliseconds is for the most common mistake with timestamps.
func (x *exchange) hintMilliseconds() string {
	v := x.r.Header.Get(x.result.Field)
	if len(v) != 13 {
		return ""
	}
	for _, c := range []byte(v) {
		if c < '0' || c > '9' {
			return ""
		}
	}
	return "The timestamp has 13 digits, where seconds are demanded. Is it in milliseconds?"
}

// succeed answers a committed delivery.
func (x *exchange) succeed(r inbox.Receipt) {
	x.result.Outcome = OutcomeAccepted
	if r.Duplicate {
		x.result.Outcome = OutcomeDuplicate
	}
	a := &x.source.ack
	x.result.Status = a.status
	contentType := a.contentType
	if a.body == nil {
		contentType = x.p.lines.json
		b := append(x.out[:0], `{"status":"accepted","delivery_id":`...)
		b = appendJSON(b, r.DeliveryID)
		b = append(b, `,"duplicate":`...)
		b = strconv.AppendBool(b, r.Duplicate)
		b = append(b, `,"received_at":"`...)
		b = r.ReceivedAt.UTC().AppendFormat(b, time.RFC3339Nano)
		x.out = append(b, "\"}\n"...)
	} else {
		x.out = append(x.out[:0], a.body...)
	}
	x.answer(x.result.RequestID.String(), a.status, contentType, false)
}

// lines are header values that many answers share.
type lines struct{ json, problem, noStore, noSniff, close []string }

func newLines() lines {
	return lines{
		json:    []string{"application/json"},
		problem: []string{"application/problem+json; charset=utf-8"},
		noStore: []string{"no-store"},
		noSniff: []string{"nosniff"},
		close:   []string{"close"},
	}
}

const (
	// writeTime bounds the writing of an answer to a sender that does not read.
	writeTime = 5 * time.Second
	// drainTime bounds what net/http reads of a refused body before it closes.
	drainTime = time.Second
)

// answer writes x.out. Where the body was not read to its end the connection is
// closed, and after every chunked request: net/http would take what follows as
// the next request, also where the sender framed the body in two ways at once.
func (x *exchange) answer(id string, status int, contentType []string, hangUp bool) {
	h := x.w.Header()
	h["X-Request-Id"] = []string{id}
	h["Cache-Control"] = x.p.lines.noStore
	h["X-Content-Type-Options"] = x.p.lines.noSniff
	if len(x.out) > 0 {
		h["Content-Type"] = contentType
	}
	if x.r.ProtoMajor == 1 {
		control := http.NewResponseController(x.w)
		now := time.Now()
		control.SetWriteDeadline(now.Add(writeTime))
		if !x.consumed {
			control.SetReadDeadline(now.Add(drainTime))
		}
		if !x.consumed || len(x.r.TransferEncoding) > 0 || hangUp {
			h["Connection"] = x.p.lines.close
		}
	} else if x.gone() && tooManyResets(x.r.Context()) {
		// HTTP/2 resets a refused stream by itself. There, this header ends the
		// whole connection, once the other streams are done.
		h["Connection"] = x.p.lines.close
	}
	x.answered = true
	x.w.WriteHeader(status)
	if len(x.out) > 0 {
		x.w.Write(x.out) // a sender that has gone gets no answer
	}
}
