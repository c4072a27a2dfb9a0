package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

var errIDDemanded = errors.New("a delivery id is demanded")

// splitID takes a delivery id apart into the headers that it is made of, unless the
// request has some of them. It cuts from the right: what stands in front is a
// source, often a URL.
func (c *check) splitID(id string, set func(*place, string)) error {
	parts := c.p.id.template
	for i := range parts {
		if parts[i].kind != partPlace {
			continue
		}
		if parts[i].place.kind != placeHeader {
			return nil
		}
		if _, there, _ := headerValue(c.r.Header, parts[i].place.name); there {
			return nil
		}
	}
	if id == "" {
		return errIDDemanded
	}
	rest := id
	for i := len(parts) - 1; i >= 0; i-- {
		cut := 0
		switch {
		case parts[i].kind == partLiteral:
			cut = len(rest) - len(parts[i].text)
			if !strings.HasSuffix(rest, parts[i].text) {
				cut = -1
			}
		case i > 0:
			cut = strings.LastIndex(rest, parts[i-1].text)
			if cut >= 0 {
				cut += len(parts[i-1].text)
			}
		}
		if cut < 0 || cut == len(rest) {
			return fmt.Errorf("the delivery id must read %s, or these headers be there", c.p.recipe.ID.From[0])
		}
		if parts[i].kind == partPlace {
			set(&parts[i].place, rest[cut:])
		}
		rest = rest[:cut]
	}
	return nil
}

// insertBeside puts what is signed beside the signature where it is not there yet:
// the timestamp, the delivery id, the id of the key.
func (c *check) insertBeside(key *Key, id string) error {
	in := c.p.signature.in
	switch _, err := c.demand(&c.p.signature.places[0]); {
	case err == nil:
		return c.fail(ReasonHeaderDuplicated, c.p.signature.places[0].String())
	case err.Reason != ReasonHeaderMissing:
		return err
	}
	insert := func(p *place, value string) error {
		if _, err := c.demand(p); err == nil {
			return nil
		} else if err.Reason != ReasonHeaderMissing {
			return err
		}
		if value == "" {
			return fmt.Errorf("nothing is given for %s", p)
		}
		return c.r.insert(p, value)
	}
	for i := range c.p.parts {
		p := &c.p.parts[i].place
		if c.p.parts[i].kind != partPlace || p.kind != in {
			continue
		}
		value := ""
		if t := c.p.timestamp; t != nil && t.from.kind == in && t.from.same(p) {
			value = t.format.format(c.now)
		} else if d := c.p.id; d != nil && d.template == nil && d.from[0].kind == in && d.from[0].same(p) {
			value = id
			// A misfit in a body is accepted under another id; a sender is told.
			if _, err := c.demand(p); err != nil && id != "" && !d.valid(id) {
				return c.fail(ReasonDeliveryIDInvalid, p.String())
			}
		}
		if err := insert(p, value); err != nil {
			return err
		}
	}
	if c.p.keyID.kind == in {
		return insert(&c.p.keyID, key.ID)
	}
	return nil
}

// insert puts a value into the body or the query, and leaves every other byte.
func (r *Request) insert(p *place, value string) error {
	field := url.QueryEscape(p.name) + "=" + url.QueryEscape(value)
	switch p.kind {
	case placeJSON:
		body, err := insertJSON(r.Body, p.path, value)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		r.Body = body
	case placeForm:
		body := bytes.Clone(r.Body)
		if len(body) > 0 {
			body = append(body, '&')
		}
		r.Body = append(body, field...)
	case placeQuery:
		sep := "?"
		if strings.Contains(r.URL, "?") {
			sep = "&"
		}
		r.URL += sep + field
	}
	return nil
}

// insertJSON adds a member at the end of the object that path leads to. Objects on
// the path are made where there are none; elements of arrays are not.
func insertJSON(text []byte, path []string, value string) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		token, err := d.Token()
		if err != nil {
			return nil, errNotJSON
		}
		found, members := false, 0
		switch token {
		case json.Delim('{'):
			for !found && d.More() {
				name, err := d.Token()
				if err != nil {
					return nil, errNotJSON
				}
				members++
				if found = name == path[0] && len(path) > 1; !found && d.Decode(new(json.RawMessage)) != nil {
					return nil, errNotJSON
				}
			}
		case json.Delim('['):
			for !found && d.More() {
				if found = path[0] == strconv.Itoa(members) && len(path) > 1; !found && d.Decode(new(json.RawMessage)) != nil {
					return nil, errNotJSON
				}
				members++
			}
		}
		if found {
			path = path[1:]
			continue
		}
		if token != json.Delim('{') {
			return nil, errors.New("the body has no object to put it in")
		}
		if _, err := d.Token(); err != nil { // the closing brace
			return nil, errNotJSON
		}
		member, err := jsonMember(path, value)
		if err != nil {
			return nil, err
		}
		if members > 0 {
			member = "," + member
		}
		end := d.InputOffset() - 1
		return append(append(bytes.Clone(text[:end]), member...), text[end:]...), nil
	}
}

// jsonMember is "a":{"b":"value"} for the path a.b.
func jsonMember(path []string, value string) (string, error) {
	quoted, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	member := string(quoted)
	for i := len(path) - 1; i >= 0; i-- {
		if _, isIndex := digits(path[i], 9); isIndex && i > 0 {
			return "", errors.New("the body has no array to put it in")
		}
		if quoted, err = json.Marshal(path[i]); err != nil {
			return "", err
		}
		member = string(quoted) + ":" + member
		if i > 0 {
			member = "{" + member + "}"
		}
	}
	return member, nil
}
