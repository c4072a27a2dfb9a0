package inboxtest

import (
	"bufio"
	"encoding/binary"
	"io"
	"strings"
	"sync/atomic"
)

// CommitFault is what a FaultProxy does to a COMMIT.
type CommitFault int

// The faults at COMMIT. To the client the first two look alike.
const (
	PassCommit CommitFault = iota
	// CutBeforeCommit ends the connection instead of sending COMMIT on, so the
	// transaction is rolled back.
	CutBeforeCommit
	// CutAfterCommit sends COMMIT on, waits for the server's answer and ends the
	// connection in place of passing it on, so the transaction is committed.
	CutAfterCommit
	// HoldCommit keeps COMMIT, and what comes after it, until Release.
	HoldCommit
)

// AtCommit asks for a fault at the next n COMMITs, whether they come as a simple
// query, an extended one or a prepared statement, alone or in a pipeline.
func (p *FaultProxy) AtCommit(f CommitFault, n int) { p.AtCommitOf("", f, n) }

// AtCommitOf is AtCommit for transactions in which a statement with this text in it
// was sent, such as the name of a table.
func (p *FaultProxy) AtCommitOf(text string, f CommitFault, n int) {
	p.change(func() { p.commitOf, p.commit, p.left = text, f, n })
}

// Release lets the COMMITs go on that are being held, and holds no more.
func (p *FaultProxy) Release() { p.AtCommit(PassCommit, 0) }

// commitFault counts the COMMIT of a transaction and says what is to happen to it.
func (p *FaultProxy) commitFault(transaction map[string]bool) (f CommitFault) {
	p.change(func() {
		p.counts.Commits++
		asked := false
		for text := range transaction {
			asked = asked || strings.Contains(text, p.commitOf)
		}
		if p.left > 0 && asked {
			p.left--
			f = p.commit
		}
		if f == HoldCommit {
			p.counts.Held++
		}
	})
	return f
}

// requests relays messages from the client to the server.
type requests struct {
	*link
	from       *bufio.Reader
	answers    *answers
	statements map[string]string // texts of prepared ones, by name
	portals    map[string]string // texts, by name
	ran        map[string]bool   // texts since the last BEGIN
	cycles     int64             // that the server will end with ReadyForQuery, the start-up among them
}

func (r *requests) relay() {
	r.statements, r.portals, r.cycles = map[string]string{}, map[string]string{}, 1
	r.ran = map[string]bool{}
	if !r.startUp() {
		return
	}
	var batch []byte // messages that came together go on together
	for {
		if r.from.Buffered() == 0 {
			if !r.write(r.server, batch) {
				return
			}
			batch = batch[:0]
		}
		m, err := readMessage(r.from)
		if err != nil {
			return
		}
		if r.isCommit(m) {
			switch r.p.commitFault(r.ran) {
			case CutBeforeCommit:
				if r.write(r.server, batch) {
					r.p.change(func() { r.p.counts.CutBefore++ })
				}
				return
			case CutAfterCommit:
				// Set before it is sent, so that no part of the answer slips through.
				r.answers.lost.Store(r.cycles)
			case HoldCommit:
				if !r.write(r.server, batch) || !r.hold() {
					return
				}
				batch = batch[:0]
			}
		}
		if m[0] == 'Q' || m[0] == 'S' || m[0] == 'F' { // query, sync, function call
			r.cycles++
		}
		batch = append(batch, m...)
	}
}

// hold waits for Release.
func (r *requests) hold() bool {
	released := r.p.until(r.done, func() bool { return r.p.commit != HoldCommit })
	r.p.change(func() {
		r.p.counts.Held--
		if released {
			r.p.counts.Released++
		}
	})
	return released
}

// startUp relays the first message, which has no type. Encryption is declined, so
// that the messages after it can be read.
func (r *requests) startUp() bool {
	const gssRequest, sslRequest = 80877104, 80877103
	for {
		head, err := r.from.Peek(8)
		if err != nil {
			return false
		}
		m := make([]byte, binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(r.from, m); err != nil {
			return false
		}
		if code := binary.BigEndian.Uint32(m[4:]); code != gssRequest && code != sslRequest {
			return r.write(r.server, m)
		}
		if !r.write(r.client, []byte("N")) {
			return false
		}
	}
}

// isCommit reports whether the server commits when it gets this message. It keeps
// account of what was prepared, bound and run.
func (r *requests) isCommit(m []byte) bool {
	field := func(i int) string {
		fields := strings.SplitN(string(m[5:]), "\x00", i+2)
		return fields[min(i, len(fields)-1)]
	}
	var text string
	switch m[0] {
	case 'Q': // query
		text = field(0)
	case 'E': // execute: portal
		text = r.portals[field(0)]
	case 'P': // parse: statement, query
		r.statements[field(0)] = field(1)
		return false
	case 'B': // bind: portal, statement
		r.portals[field(0)] = r.statements[field(1)]
		return false
	default:
		return false
	}
	if strings.HasPrefix(strings.ToLower(text), "begin") {
		clear(r.ran)
	}
	r.ran[text] = true
	return commits(text)
}

// commits reports whether the last statement of a query is a COMMIT.
func commits(query string) bool {
	query = strings.TrimRight(query, "; \t\r\n")
	query = query[strings.LastIndexByte(query, ';')+1:]
	words := strings.Fields(strings.ToLower(query))
	return len(words) > 0 && (words[0] == "commit" || words[0] == "end") && !(len(words) > 1 && words[1] == "prepared")
}

// answers relays messages from the server to the client.
type answers struct {
	*link
	from *bufio.Reader
	// lost is after how many cycles the one with a COMMIT begins whose answer nobody
	// is to see; 0: none. A pipeline may have answers to come before that.
	lost atomic.Int64
}

func (a *answers) relay() {
	defer a.cut(false)
	var batch []byte
	for cycles := int64(0); ; {
		if a.from.Buffered() == 0 {
			if !a.write(a.client, batch) {
				return
			}
			batch = batch[:0]
		}
		m, err := readMessage(a.from)
		if err != nil {
			a.write(a.client, batch)
			return
		}
		if lost := a.lost.Load(); lost == 0 || cycles < lost {
			batch = append(batch, m...)
		} else if m[0] == 'C' && string(m[5:]) == "COMMIT\x00" {
			a.p.change(func() { a.p.counts.CutAfter++ })
			return
		} else if m[0] == 'Z' {
			return // the transaction had failed, and COMMIT was a ROLLBACK or skipped
		}
		if m[0] == 'Z' {
			cycles++
		}
	}
}

// readMessage reads a message: a type, a length that counts itself, a body.
func readMessage(from *bufio.Reader) ([]byte, error) {
	head, err := from.Peek(5)
	if err != nil {
		return nil, err
	}
	m := make([]byte, 1+binary.BigEndian.Uint32(head[1:]))
	_, err = io.ReadFull(from, m)
	return m, err
}
