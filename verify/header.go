package verify

import (
	"errors"
	"net/http"
)

var errHeaderTwice = errors.New("header stands twice")

type spelling uint8

const (
	spelledOther spelling = iota
	spelledRight
	spelledTwin // right once _ is taken for -
)

// spelled compares a header name without case. A twin with underscores reads the
// same to many servers behind us, so it counts as a repetition.
func spelled(got, name string) spelling {
	if len(got) != len(name) {
		return spelledOther
	}
	s := spelledRight
	if got == name {
		return s
	}
	for i := 0; i < len(got); i++ {
		a, b := lower(got[i]), lower(name[i])
		if a == b {
			continue
		}
		if (a == '_' && b == '-') || (a == '-' && b == '_') {
			s = spelledTwin
			continue
		}
		return spelledOther
	}
	return s
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c | 0x20
	}
	return c
}

// headerValue returns the one value of a header, over any map. Its lines are
// counted over all spellings.
func headerValue(h http.Header, name string) (string, bool, error) {
	value, lines, right := "", 0, false
	for k, vs := range h {
		switch spelled(k, name) {
		case spelledRight:
			if lines += len(vs); len(vs) > 0 {
				value, right = vs[0], true
			}
		case spelledTwin:
			lines += len(vs)
		}
	}
	if !right {
		return "", false, nil
	}
	if lines > 1 {
		return "", false, errHeaderTwice
	}
	return value, value != "", nil
}

const maxHeaders = 16

// headerName is a header that a recipe names.
type headerName struct {
	name     string
	list     bool // several lines are one comma list
	multi    bool // each line is a value of its own
	demanded bool // refused without it; the signature has a reason of its own
}

// headers finds the lines of every header that the recipe names, in one walk over
// the map. Step 1 of the order.
func (c *check) headers() *Error {
	names := c.p.headers
	var twins uint32
	var twice uint32
	for k, lines := range c.r.Header {
		if len(lines) == 0 || len(k) >= 64 && !c.p.longNames || len(k) < 64 && c.p.nameLengths&(1<<len(k)) == 0 {
			continue
		}
		for i := range names {
			if len(names[i].name) != len(k) {
				continue
			}
			switch spelled(k, names[i].name) {
			case spelledRight:
				// Two keys of the map have no order, so they are never a list.
				if c.lines[i] != nil || len(lines) > 1 && !names[i].list && !names[i].multi {
					twice |= 1 << i
				}
				c.lines[i] = lines
			case spelledTwin:
				twins |= 1 << i
			}
		}
	}
	for i := range names {
		if twice&(1<<i) != 0 || twins&(1<<i) != 0 && c.lines[i] != nil {
			return c.fail(ReasonHeaderDuplicated, names[i].name)
		}
	}
	return nil
}

// header is the value of a single-valued header, empty if it is absent.
func (c *check) header(slot int) string {
	if len(c.lines[slot]) == 0 {
		return ""
	}
	return c.lines[slot][0]
}

func (c *check) demandedHeaders() *Error {
	for i := range c.p.headers {
		if h := &c.p.headers[i]; h.demanded && c.header(i) == "" {
			return c.fail(ReasonHeaderMissing, h.name)
		}
	}
	return nil
}
