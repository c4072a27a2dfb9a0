package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// traceLine is one line of a trace.
type traceLine struct {
	at    time.Time
	who   string
	what  string
	state string // of the forward after it
}

// lines puts everything that happened in the order of time.
func (t traced) lines() []traceLine {
	d := t.Delivery
	lines := []traceLine{
		{t.receivedAt, "received", fmt.Sprintf("request %s from %s, %d bytes, key %s", orDash(d.RequestID), orDash(d.Peer), d.BodySize, orDash(d.KeyID)), ""},
		{d.ReceivedAt, "accepted", fmt.Sprintf("body hash %s…, configuration %d", d.BodyHash[:8], d.ConfigRevision) + d.resource(), ""},
	}
	for _, f := range d.Forwards {
		lines = append(lines, f.lines()...)
	}
	for _, c := range t.Conflicts {
		what := fmt.Sprintf("other bytes, body hash %s…, key %s", c.BodyHash[:8], orDash(c.KeyID))
		if c.Seen > 1 {
			what += fmt.Sprintf("   ×%d until %s", c.Seen, c.LastSeenAt.Format("15:04:05"))
		}
		lines = append(lines, traceLine{c.FirstSeenAt, "conflict", what, ""})
	}
	for _, c := range t.RevisionConflicts {
		what := fmt.Sprintf("revision %d came before with another body: %s, which stays", c.Revision, orDash(c.FirstDeliveryID))
		if c.FirstDeliveryID == d.DeliveryID {
			what = fmt.Sprintf("revision %d came again with another body: %s, which is not sent", c.Revision, c.DeliveryID)
		}
		lines = append(lines, traceLine{c.NoticedAt, "revision", what, ""})
	}
	for _, r := range t.Refusals {
		lines = append(lines, traceLine{r.FirstAt, "refused", "under this id: " + r.what(), ""})
	}
	for _, e := range t.Events {
		lines = append(lines, traceLine{e.At, e.Destination, e.text(), ""})
	}
	for _, a := range t.Acts {
		for i, l := range lines { // the state is no longer that after the attempt
			if l.who == a.Destination && strings.HasPrefix(l.what, "attempt") && l.at.Before(a.At) {
				lines[i].state = ""
			}
		}
		lines = append(lines, traceLine{a.At, a.Action, a.text(), ""})
	}
	slices.SortStableFunc(lines, func(a, b traceLine) int { return a.at.Compare(b.at) })
	return lines
}

// lines are the attempts of a forward; equal ones in a row are one line.
func (f forwardLine) lines() (lines []traceLine) {
	for i := 0; i < len(f.Ledger); {
		a := f.Ledger[i]
		same := i + 1
		for same < len(f.Ledger) && f.Ledger[same].equal(a) {
			same++
		}
		line := traceLine{at: a.EndedAt, who: f.Destination, what: fmt.Sprintf("attempt %d   %s", a.Number, a.text())}
		if same-i > 1 {
			last := f.Ledger[same-1]
			line.what = fmt.Sprintf("attempts %d to %d   %s   ×%d until %s", a.Number, last.Number, a.outcome(), same-i, last.EndedAt.Format("15:04:05")) + a.manual()
		}
		if same == len(f.Ledger) && !a.Late {
			line.state = string(f.State)
		}
		lines = append(lines, line)
		i = same
	}
	if f.SettledAt != nil && (f.State == inbox.Superseded || f.State == inbox.Cancelled) {
		lines = append(lines, traceLine{*f.SettledAt, f.Destination, f.ended(), string(f.State)})
	}
	return lines
}

// ended says why a forward is not sent any more.
func (f forwardLine) ended() string {
	switch {
	case f.State == inbox.Cancelled:
		return "a person decided that it is not sent"
	case f.Applied != nil:
		return fmt.Sprintf("not sent: revision %d was applied", *f.Applied)
	case f.Passed != nil:
		return fmt.Sprintf("not sent: everything up to revision %d was given up", *f.Passed)
	}
	return "not sent: another revision went before it"
}

// text says who did it and why.
func (a actLine) text() string {
	text := fmt.Sprintf("by %s: %q", a.Actor, a.Reason)
	if a.Destination != "" {
		text = "to " + a.Destination + " " + text
	}
	if a.Detail != "" {
		text += ", " + a.Detail
	}
	return text
}

// resource is what the delivery is about, as the end of a line.
func (d deliveryLine) resource() string {
	if d.ResourceID == "" {
		return ""
	}
	return ", " + d.ResourceType + "/" + d.ResourceID + d.revision()
}

// equal says whether two attempts ended alike.
func (a attemptLine) equal(b attemptLine) bool {
	return a.Class == b.Class && a.Status == b.Status && a.Error == b.Error && a.Late == b.Late && a.Manual == b.Manual && string(a.Answer) == string(b.Answer)
}

// outcome is the status, or the kind of end without one.
func (a attemptLine) outcome() string {
	if a.Status != 0 {
		return fmt.Sprint(a.Status)
	}
	return a.Class
}

func (a attemptLine) text() string {
	text := a.outcome()
	if a.duration > 0 {
		text += " in " + shortDuration(a.duration)
	}
	if a.Error != "" && a.Status == 0 {
		text += "   " + a.Error
	}
	if len(a.Answer) > 0 && a.Class != "2xx" {
		text += fmt.Sprintf("   %q", beginning(strings.ToValidUTF8(string(a.Answer), "?"), 60))
	}
	if a.Late {
		text += "   late: its lease was lost, nothing changed"
	}
	return text + a.manual()
}

// manual says whose replay it was, as the end of a line.
func (a attemptLine) manual() string {
	if a.Manual == "" {
		return ""
	}
	return "   manual, by " + a.Manual
}

// beginning cuts s to n characters.
func beginning(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n]) + "…"
}

func shortDuration(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

func (t traced) print(w io.Writer, terminal bool, now time.Time) error {
	d, lines := t.Delivery, t.lines()
	format, day := "15:04:05.000", lines[0].at.UTC().Format(time.DateOnly)
	if lines[len(lines)-1].at.UTC().Format(time.DateOnly) != day {
		format = "01-02 15:04:05"
	}
	fmt.Fprintf(w, "%s   %s   tenant %s   source %s   %s (UTC)   %s\n", cell(d.DeliveryID, terminal), cell(orDash(d.EventType), terminal),
		d.Tenant, d.Source, day, counted(len(d.Forwards), "forward"))
	who := len("received")
	for _, l := range lines {
		who = max(who, len(l.who))
	}
	row := func(when, name, what, state string) {
		line := fmt.Sprintf("  %-*s  %-*s  %s", len(format), when, who, name, what)
		if state != "" {
			line = fmt.Sprintf("%-84s  %s", line, state)
		}
		fmt.Fprintln(w, cell(line, terminal))
	}
	for _, l := range lines {
		row(l.at.UTC().Format(format), l.who, l.what, l.state)
	}
	for _, f := range d.Forwards {
		if f.Attempts > 0 && len(f.Ledger) == 0 && f.LeaseUntil == nil {
			row("now", f.Destination, fmt.Sprintf("%s after %s, of which retention has removed the ledger", f.State, counted(f.Attempts, "attempt")), "")
		}
		if now := f.waits(now); now != "" {
			row("now", f.Destination, now, "")
		}
	}
	if len(d.Forwards) == 0 {
		row("now", "–", d.unrouted(), "")
	}
	if t.Gone != "" {
		row("now", "body", t.Gone, "")
	}
	row("–", "repeats", "answered and not stored: the server's log has a line for each", "")
	_, err := fmt.Fprintf(w, "  %-*s  %s\n", len(format), "next", cell(strings.Join(t.next(), "   |   "), terminal))
	return err
}

// next are the commands that go on: first what moves a forward that waits for a person.
func (t traced) next() []string {
	d, me := t.Delivery, programName()
	of := func(id string) string { return shellQuote(id) + " --source " + shellQuote(d.Source) }
	var acts []string
	act := func(command string) {
		if !slices.Contains(acts, command) && len(acts) < 2 {
			acts = append(acts, command)
		}
	}
	for _, f := range d.Forwards {
		to := " --destination " + shellQuote(f.Destination)
		switch {
		case f.State == inbox.Blocked && t.Gone == "", f.HoldReason == inbox.HoldPerson:
			act(me + " replay --delivery " + of(d.DeliveryID) + to)
		case f.Behind != nil && f.Behind.State == inbox.Blocked:
			act(me + " replay --delivery " + of(f.Behind.DeliveryID) + to)
		case f.Paused != nil:
			act(me + " destinations resume " + shellQuote(f.Destination) + " --reason TEXT")
		case f.Breaker != nil:
			act(me + " destinations probe " + shellQuote(f.Destination))
		case f.Gap != nil:
			act(me + " resources release " + shellQuote(d.ResourceType+"/"+d.ResourceID) + to)
		}
	}
	if len(t.Conflicts) > 0 {
		act(me + " events diff --conflict " + of(d.DeliveryID))
	}
	next := append(acts, me+" events show "+shellQuote(d.DeliveryID))
	if t.Gone == "" {
		next = append(next, me+" events body "+shellQuote(d.DeliveryID)+" --pretty")
	}
	return next
}

// waits says what a forward that is not settled waits for.
func (f forwardLine) waits(now time.Time) string {
	switch {
	case f.LeaseUntil != nil && f.LeaseUntil.After(now):
		return fmt.Sprintf("attempt %d is under way, lease until %s", f.Attempts, f.LeaseUntil.Format("15:04:05"))
	case f.Paused != nil:
		return f.paused()
	case f.State == inbox.Blocked:
		return fmt.Sprintf("blocked (%s) after %s: only a person moves it", orDash(f.BlockedReason), counted(f.Attempts, "attempt"))
	case f.place(now) != "":
		return fmt.Sprintf("%s: %s", f.State, f.place(now))
	case f.NextAttemptAt == nil:
		return ""
	case f.ExpiresAt != nil && !f.ExpiresAt.After(now):
		return fmt.Sprintf("%s, its time ended %s: no attempt begins any more", f.State, f.ExpiresAt.Format(time.RFC3339))
	case f.NextAttemptAt.After(now):
		return fmt.Sprintf("%s, attempt %d in %s%s%s", f.State, f.Attempts+1, shortDuration(f.NextAttemptAt.Sub(now)), f.deadline(), f.breaks(now))
	case f.Breaker != nil:
		return fmt.Sprintf("%s, attempt %d is due%s%s", f.State, f.Attempts+1, f.deadline(), f.breaks(now))
	}
	rate := ""
	if f.Rate != "" {
		rate = ", at " + f.Rate + " with what else is due"
	}
	return fmt.Sprintf("%s, attempt %d is due: a running server takes it%s%s", f.State, f.Attempts+1, rate, f.deadline())
}

// deadline is until when it is tried, as the end of a line.
func (f forwardLine) deadline() string {
	if f.ExpiresAt == nil {
		return ""
	}
	return ", tried until " + f.ExpiresAt.Format(time.RFC3339)
}

// breaks says what the breaker of the destination lets through, as the end of a line.
func (f forwardLine) breaks(now time.Time) string {
	if f.Breaker == nil {
		return ""
	}
	return "; the breaker of " + f.Destination + " is " + f.Breaker.text(now)
}

func (f forwardLine) paused() string {
	return fmt.Sprintf("%s: %s is %s", f.State, f.Destination, f.Paused.text())
}
