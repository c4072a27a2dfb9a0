package verify

import (
	"crypto/hmac"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
)

// coder is a scheme that a recipe cannot say, named code:NAME. Key id, delivery id,
// event type, preconditions and answer stay the recipe's.
type coder struct {
	// algo is the one of algorithms whose keys the scheme takes; choose finds it
	// where the recipe has a say.
	algo   string
	choose func(*Recipe) (string, error)
	// encoding of shared secrets. Defaults to utf8.
	encoding string
	// usable refuses shared secrets of the wrong shape. Nil: any will do.
	usable func(raw []byte) bool
	// fields are those for code:NAME only that the scheme reads, params the values
	// of Verifier.Params.
	fields, params []string
	// compile sets what a template would: program.signature.in and .places,
	// headers, bodySigned, needsURL, timestamp, and where the scheme has them,
	// fields, keyID and id in them.
	compile func(*builder) error
	// covers says whether the signature always covers a value, besides those in a
	// body that is signed whole.
	covers func(*builder, *place) bool
	// signs is what Scheme.Covers says; part, what of the body is signed where not
	// all of it is.
	signs []string
	part  string
	// expires: without a window too, the signature says until when it is good.
	expires bool
	// open sets check.coded, parses what stands in headers, and judges a timestamp
	// of stageCode.
	open func(*check) *Error
	// sign adds to check.r what verifies under key; nil: no sender has the key.
	// Time and delivery id are in the headers already where those stand in some.
	sign func(*check, *Key, SignOptions) (Request, error)
	// answerMAC is the MAC over a challenge, for handshakes of kind keyed_answer, and
	// the public half of the key; nil: such a challenge is not answered. The scheme
	// takes no delivery whose signed text an answer could sign.
	answerMAC func(k *Key, challenge string) (mac []byte, public string)
}

// coded is one request under a scheme in code.
type coded interface {
	// read finds what is signed, now that the body is here.
	read(*check) *Error
	// fits compares all candidates under one key, shared secrets in constant time
	// and without early exit.
	fits(*check, *Key) bool
	// claims judges what is only believed once the signature holds.
	claims(*check) *Error
}

// coders is the closed table of code:NAME.
var coders = map[string]*coder{
	"adyen-item":      &adyen,
	"braintree":       &braintree,
	"contentful":      &contentful,
	"fusionauth-jwt":  fusionAuthJWT.coder(),
	"hook0":           &hook0,
	"messagebird-jwt": birdJWT.coder(),
	"monday-jwt":      mondayJWT.coder(),
	"plaid-jwt":       plaidJWT.coder(),
	"plivo-v3":        &plivoV3,
	"rfc9421":         &messageSignature,
	"sns":             &sns,
	"twilio":          &twilio,
}

func (b *builder) codeAlgo() error {
	code := coders[strings.TrimPrefix(b.r.Algo, "code:")]
	if code == nil {
		return fmt.Errorf("unknown value %q", b.r.Algo)
	}
	name := code.algo
	if code.choose != nil {
		var err error
		if name, err = code.choose(b.r); err != nil {
			return err
		}
	}
	b.p.algo, b.p.code, b.p.sha1 = algorithms[name], code, strings.Contains(name, "sha1")
	return nil
}

// compileCode refuses the fields that describe a signature, and lets the scheme do it.
func (b *builder) compileCode() error {
	if b.p.code == nil {
		return nil
	}
	r := b.r
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"signature", !reflect.ValueOf(r.Signature).IsZero()}, {"template", r.Template != ""}, {"timestamp", r.Timestamp != nil},
	} {
		if f.set {
			return wrongf(f.name, "does not go with %s", r.Algo)
		}
	}
	return b.p.code.compile(b)
}

// codeOnly refuses the fields for code:NAME that the scheme does not read.
func (b *builder) codeOnly() error {
	r := b.r
	var reads []string
	if b.p.code != nil {
		reads = b.p.code.fields
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"tolerance_s", r.ToleranceS != 0}, {"header", r.Header != ""}, {"label", r.Label != ""}, {"sig_alg", r.SigAlg != ""},
		{"min_signature_version", r.MinSignatureVersion != 0}, {"required_components", len(r.RequiredComponents) > 0},
	} {
		if f.set && !slices.Contains(reads, f.name) {
			return wrongf(f.name, "does not go with %s", r.Algo)
		}
	}
	return nil
}

// codeWindow is the recipe's tolerance_s, or the scheme's own.
func (b *builder) codeWindow(own time.Duration) (time.Duration, error) {
	switch s := b.r.ToleranceS; {
	case s == 0:
		return own, nil
	case s == NoWindow:
		return 0, nil
	case s < 0 || s > 1<<32:
		return 0, wrongf("tolerance_s", "%d is out of range", s)
	default:
		return time.Duration(s) * time.Second, nil
	}
}

// aside runs a step of a scheme in code on a copy: a check whose address goes to a
// function that the compiler does not know would leave the stack for every scheme.
func (c *check) aside(step func(*check) *Error) *Error {
	k := *c
	err := step(&k)
	*c = k
	return err
}

func (c *check) tryCoded(l *keyList) int {
	k, hit := *c, -1
	for i := l.n - 1; i >= 0; i-- {
		// Not joined with && in front of fits: no key is left out.
		fits := k.coded.fits(&k, l.keys[i])
		if fits && c.p.usable(l.keys[i]) {
			hit = i
		}
	}
	return hit
}

// coveredID says whether this very signature names all headers of the delivery id.
func (c *check) coveredID() bool {
	covered := func(p *place) bool { return p.kind == placeHeader && c.covered&(1<<p.slot) != 0 }
	spec := c.p.id
	if spec.template == nil {
		return len(spec.from) == 1 && covered(&spec.from[0])
	}
	for i := range spec.template {
		if p := &spec.template[i]; p.kind == partPlace && !covered(&p.place) {
			return false
		}
	}
	return true
}

// mac is the HMAC of a text by hashes[h].
func (k *Key) mac(h int, texts ...[]byte) []byte {
	d := k.Secret.data()
	st := d.state(h)
	for _, text := range texts {
		st.hash.Write(text)
	}
	sum := st.hash.Sum(nil)
	d.release(h, st)
	return sum
}

// candidateIs compares a MAC with every candidate.
func (c *check) candidateIs(sum []byte) bool {
	is := false
	for j := 0; j < c.count; j++ {
		var buf [maxDigest]byte
		equal := hmac.Equal(sum, c.p.signature.decode(buf[:0], c.candidates[j]))
		is = is || equal
	}
	return is
}

// nameList splits a list of header names, which a signature covers, in lower case.
func nameList(text, sep string) ([]string, bool) {
	if len(text) > maxSignature {
		return nil, false
	}
	names := strings.Split(strings.ToLower(text), sep)
	for i, name := range names {
		if !validHeaderName(name) || slices.Contains(names[:i], name) || i == maxCandidates {
			return nil, false
		}
	}
	return names, true
}

// namedHeaders are the values of headers that the signature names. Any of them may
// be missing or repeated, which the walk over the recipe's headers did not see.
func (c *check) namedHeaders(names []string) ([]string, *Error) {
	values := make([]string, len(names))
	for i, name := range names {
		value, ok, err := headerValue(c.r.Header, name)
		if err != nil {
			return nil, c.fail(ReasonHeaderDuplicated, name)
		}
		if !ok {
			return nil, c.fail(ReasonHeaderMissing, name)
		}
		values[i] = value
	}
	return values, nil
}

// cover notes which of the recipe's headers the signature covers.
func (c *check) cover(names []string) {
	for slot := range c.p.headers {
		if slices.Contains(names, strings.ToLower(c.p.headers[slot].name)) {
			c.covered |= 1 << slot
		}
	}
}

// addHeader is for signers.
func (c *check) addHeader(name, value string) {
	c.r.Header = join(c.r.Header, http.Header{http.CanonicalHeaderKey(name): {value}})
}
