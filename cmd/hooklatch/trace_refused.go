package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hooklatch/hooklatch/inbox"
)

// maxTracedRefusals bounds the refusals that are shown of one id.
const maxTracedRefusals = 20

// notTraced is the JSON of trace for an id that the inbox does not have.
type notTraced struct {
	V        int            `json:"v"`
	ID       string         `json:"id"`
	Found    bool           `json:"found"`
	Refusals []*refusalLine `json:"refusals"`
}

// traceRefused says what is known of an id that the inbox does not have: the
// refusals whose sample it is.
func traceRefused(ctx context.Context, s *stdio, store *inbox.Store, id string, asJSON bool) error {
	answer := notTraced{V: 1, ID: id, Refusals: []*refusalLine{}}
	for r, err := range store.Refusals(ctx, inbox.RefusalFilter{ID: id, Limit: maxTracedRefusals}) {
		if err != nil {
			return err
		}
		answer.Refusals = append(answer.Refusals, describeRefusal(&r))
	}
	if asJSON {
		return errors.Join(printJSON(s.out, answer), answerNo())
	}
	if len(answer.Refusals) == 0 {
		return notFound(s, id, false)
	}
	terminal := isTerminal(s.out)
	fmt.Fprintf(s.out, "%s is not in the inbox\n", cell(id, terminal))
	for _, r := range answer.Refusals {
		fmt.Fprintf(s.out, "  refused      %s\n", cell(r.traceText(), terminal))
	}
	if last := answer.Refusals[0]; last.Source != "" {
		fmt.Fprintf(s.out, "  next         %s refusals --source %s --code %s\n", programName(), shellQuote(last.Source), last.Code)
	}
	return answerNo()
}

// traceText is the refusal in one line. Its count is that of all requests of the
// kind in that minute, of which the one with the id was the first.
func (r *refusalLine) traceText() string {
	parts := []string{r.FirstAt.Format("2006-01-02 15:04:05 UTC"), "source " + orDash(r.Source), r.Code}
	if r.Reason != r.Code {
		parts = append(parts, r.Reason)
	}
	if r.KeyID != "" {
		parts = append(parts, "key "+r.KeyID)
	}
	if len(r.Causes) > 0 {
		parts = append(parts, "cause "+strings.Join(r.Causes, ", "))
	}
	parts = append(parts, r.Sample.text())
	if r.Count > 1 {
		parts = append(parts, fmt.Sprintf("×%d until %s", r.Count, r.LastAt.Format("15:04:05")))
	}
	return strings.Join(parts, "   ")
}
