package verify

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"io"
	"strconv"
	"strings"
)

// signedText is one text that may have been signed: indexes into what the explainer
// has of each. 0 is what the scheme says, or what arrived.
type signedText struct{ frame, url, body, time, faults int }

// readTexts lists all texts by their number of departures. Of equal ones the first
// stays.
func (x *explainer) readTexts() {
	for f := range others(len(x.frames)) {
		x.textsOf(f)
	}
	seen := map[string]bool{}
	for n, list := range x.texts {
		kept := list[:0]
		for _, t := range list {
			if key, ok := x.textKey(&t); ok && !seen[key] {
				seen[key] = true
				kept = append(kept, t)
			}
		}
		x.texts[n] = kept
	}
}

// textsOf lists the texts of one framing, departures of earlier stages first.
func (x *explainer) textsOf(f int) {
	urls, bodies, times := 1, 1, 1
	if x.frames[f].url {
		urls = len(x.urls)
	}
	if x.frames[f].body {
		bodies = len(x.bodies)
	}
	if x.frames[f].time {
		times = len(x.times)
	}
	for u := range others(urls) {
		for b := range others(bodies) {
			for t := range others(times) {
				n := min(f, 1) + min(u, 1) + min(b, 1) + min(t, 1)
				if n <= maxFaults {
					x.texts[n] = append(x.texts[n], signedText{f, u, b, t, n})
				}
			}
		}
	}
}

// others counts from 1 to n-1, and then gives 0.
func others(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := 1; i <= n; i++ {
			if !yield(i % n) {
				return
			}
		}
	}
}

// textKey is equal for equal texts; ok is false where a value is not there.
func (x *explainer) textKey(t *signedText) (string, bool) {
	var b strings.Builder
	for i := range x.frames[t.frame].parts {
		switch p := &x.frames[t.frame].parts[i]; p.kind {
		case partBody:
			b.WriteString("\x00" + strconv.Itoa(t.body) + "\x00")
		case partSecret:
			b.WriteString("\x00s\x00")
		default:
			value, ok := x.value(p, t)
			if !ok {
				return "", false
			}
			b.WriteString(value)
		}
	}
	return b.String(), true
}

// value is that of a part, other than the whole body and the secret.
func (x *explainer) value(p *part, t *signedText) (string, bool) {
	value := ""
	switch p.kind {
	case partLiteral:
		return p.text, true
	case partTime:
		value = x.times[t.time].text
	case partID:
		value = x.id
	case partMethod:
		value = x.c.r.Method
	case partURL, partPath, partPathQuery, partHost:
		if value = x.urls[t.url]; value != "" {
			value = urlPart(value, p.kind)
		}
	case partQueryRaw:
		return rawQuery(x.c.r.URL), true
	case partParam:
		value = x.c.v.Params[p.text]
	case partFormSorted, partBodySHA256Hex, partBodySHA256Raw, partBodyCRC32:
		return x.bodyValue(p, t.body)
	case partPlace:
		if p.place.kind == placeJSON || p.place.kind == placeForm {
			return x.bodyValue(p, t.body)
		}
		value, _ = x.c.demand(&p.place)
	}
	return value, value != ""
}

// size is the length of a text.
func (x *explainer) size(t *signedText, secret []byte) (n int64) {
	for i := range x.frames[t.frame].parts {
		switch p := &x.frames[t.frame].parts[i]; p.kind {
		case partBody:
			n += int64(len(x.bodies[t.body].text))
		case partSecret:
			n += int64(len(secret))
		default:
			value, _ := x.value(p, t)
			n += int64(len(value))
		}
	}
	return n
}

// write gives the text to w, the body without a copy.
func (x *explainer) write(w io.Writer, t *signedText, secret []byte) {
	buf := x.buf[:0]
	for i := range x.frames[t.frame].parts {
		switch p := &x.frames[t.frame].parts[i]; p.kind {
		case partBody:
			w.Write(buf)
			w.Write(x.bodies[t.body].text)
			buf = buf[:0]
		case partSecret:
			buf = append(buf, secret...)
		default:
			value, _ := x.value(p, t)
			buf = append(buf, value...)
		}
	}
	w.Write(buf)
	x.buf = buf
}

// hit is a choice of everything under which a signature agrees.
type hit struct {
	key       *tryKey
	reading   *keyReading
	digest    *digestKind
	text      signedText
	signature *sigReading
}

// search walks by rising number of departures, so that the first hit is the
// explanation with the fewest. cut is true when it ended before all was tried.
func (x *explainer) search() (found *hit, cut bool) {
	digests := x.digestKinds()
	for n := 0; n <= maxFaults; n++ {
		for i := range x.keys {
			k := &x.keys[i]
			for j := range k.readings {
				r := &k.readings[j]
				for d := range digests {
					rest := n - k.faults - len(r.list) - len(digests[d].list)
					if rest < 0 {
						continue
					}
					found, cut = x.tryTexts(k, r, &digests[d], x.texts[rest])
					if found != nil || cut {
						return found, cut
					}
				}
			}
		}
	}
	return nil, false
}

// What an attempt costs beside its text: the blocks that HMAC adds, or about the
// time of a public-key check.
const (
	costMAC    = 256
	costPublic = 64 << 10
)

func (x *explainer) tryTexts(k *tryKey, r *keyReading, d *digestKind, texts []signedText) (*hit, bool) {
	each := int64(costMAC + len(r.secret))
	if !x.c.p.algo.family.shared() {
		each = costPublic * int64(len(x.signatures))
	}
	agree := x.attempt(k, r, d)
	for i := range texts {
		t := &texts[i]
		if !x.spend(x.size(t, r.secret) + each) {
			return nil, true
		}
		if s := agree(t); s != nil {
			return &hit{k, r, d, *t, s}, false
		}
	}
	return nil, false
}

// spend counts an attempt, if there is enough left for it.
func (x *explainer) spend(cost int64) bool {
	if x.out.Bytes+cost > x.most {
		return false
	}
	x.out.Bytes += cost
	x.out.MACs++
	return true
}

// attempt returns what finds the signature that agrees with a text.
func (x *explainer) attempt(k *tryKey, r *keyReading, d *digestKind) func(*signedText) *sigReading {
	family := x.c.p.algo.family
	switch family {
	case familyToken, familyBasic:
		want := sha256.Sum256(r.secret)
		return func(*signedText) *sigReading {
			return x.agreeing(func(s []byte) bool {
				sum := sha256.Sum256(s)
				return hmac.Equal(want[:], sum[:])
			})
		}
	case familyHMAC, familyHash:
	default:
		return func(t *signedText) *sigReading {
			var text bytes.Buffer
			x.write(&text, t, nil)
			return x.agreeing(func(s []byte) bool {
				return k.key.Secret.data().public.verify(&x.c.p.algo, text.Bytes(), s)
			})
		}
	}
	var h hash.Hash
	if family == familyHash || d.plain {
		h = hashes[d.hash].new()
	} else {
		h = hmac.New(hashes[d.hash].new, r.secret)
	}
	var buf [maxDigest]byte
	return func(t *signedText) *sigReading {
		h.Reset()
		if d.plain {
			h.Write(r.secret)
		}
		x.write(h, t, r.secret)
		sum := h.Sum(buf[:0])
		return x.agreeing(func(s []byte) bool { return hmac.Equal(sum, s) })
	}
}

// agreeing is the best spelled signature that fits.
func (x *explainer) agreeing(fits func([]byte) bool) *sigReading {
	for i := range x.signatures {
		if fits(x.signatures[i].sum) {
			return &x.signatures[i]
		}
	}
	return nil
}

// explainHit names everything that had to be changed for the signature to agree.
func (x *explainer) explainHit(h *hit) {
	k := h.key.key
	x.out.MatchedKey = k.ID
	list := append([]departure(nil), h.key.list...)
	list = append(append(list, h.reading.list...), h.digest.list...)
	if h.text.frame > 0 {
		list = append(list, x.frames[h.text.frame].departure(&x.frames[0]))
	}
	if h.text.url > 0 {
		list = append(list, urlDeparture(x.urls[0], x.urls[h.text.url]))
	}
	if h.text.body > 0 {
		list = append(list, x.bodies[h.text.body].change)
	}
	x.proven(list, keyPhrase(k))
	x.otherKey(h.key)
	x.found = append(x.found, h.signature.faults...)
}

// otherKey adds what is to be known of a key that the request did not name.
func (x *explainer) otherKey(t *tryKey) {
	if x.has("key_unknown") && len(t.list) == 0 {
		x.addKnown("key_other", "the bytes match with "+keyName(t.key)+" of this source")
	}
	code, text := t.key.outsideSpan(x.c.now)
	if code != "" && !x.has(code) {
		x.addKnown(code, text)
	}
}
