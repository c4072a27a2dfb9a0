package verify

// Applies says whether r looks like a request of this scheme: all headers that it
// needs are there, and the signature has its prefix or one of its tags. What stands
// in a body is taken to be there. It is for a choice between schemes, and says
// nothing of who has sent r.
func (v *Verifier) Applies(r Request) bool {
	var c check
	if c.start(v, &r) != nil {
		return false
	}
	// A header that is there twice is there. The lines are found all the same.
	_ = c.headers()
	for i := range c.p.headers {
		if c.p.headers[i].demanded && c.header(i) == "" {
			return false
		}
	}
	for i := range c.p.require {
		if c.header(c.p.require[i].slot) == "" {
			return false
		}
	}
	spec := &c.p.signature
	for i := range spec.places {
		p := &spec.places[i]
		switch p.kind {
		case placeHeader:
			for _, line := range c.lines[p.slot] {
				if line != "" && c.looksRight(line) {
					return true
				}
			}
		case placeQuery:
			if text, err := c.demand(p); err == nil && c.looksRight(text) {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// looksRight says whether one of the candidates in a line has the prefix. Those of
// other tags are none.
func (c *check) looksRight(line string) bool {
	if c.p.code != nil {
		return true
	}
	c.count, c.sigBytes, c.fieldSeen = 0, 0, 0
	_ = c.value(line) // as far as it can be read
	for i := 0; i < c.count; i++ {
		if _, ok := c.p.signature.cut(c.candidates[i]); ok {
			return true
		}
	}
	return false
}
