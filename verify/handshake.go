package verify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"time"
)

// Handshakes says how a Verifier answers the handshakes of its scheme. The zero
// Handshakes answers those that need nothing more, and refuses the others.
type Handshakes struct {
	// Off: none is answered. Such a request is then a delivery like any other, and
	// has to verify as one.
	Off bool
	// Token is the word that was agreed on with a sender that repeats it in its
	// challenge, such as hub.verify_token. Without one these challenges are refused.
	Token Secret
	// Origins are the senders that may be told that they are welcome here (kind
	// header_echo). None: nobody is.
	Origins []string
	// EnrolUntil is how long a secret may be handed over (kind enrol), by Now. The
	// request is not signed: whoever calls first names the key. Zero: never.
	EnrolUntil time.Time
}

// Answer is the reply to a handshake. Send it with Cache-Control: no-store and
// X-Content-Type-Options: nosniff, store nothing, and hand nothing on.
type Answer struct {
	// Kind is one of HandshakeKinds. It is empty where the request was none.
	Kind   string
	Status int
	Header http.Header // besides the two above; never nil
	Body   []byte
	// Keyed: Body holds a MAC under the signing key. Give few of these, and let no
	// other scheme have that key.
	Keyed bool
	// Confirm is a URL that the sender wants to be called, once, over https and
	// without following a redirect (kind outbound). Its host is one of the sender's.
	Confirm string

	offer func() []byte
}

// Offer is the secret that the sender hands over in a handshake of kind enrol,
// else nil. Keep it before the answer is sent.
func (a *Answer) Offer() []byte {
	if a.offer == nil {
		return nil
	}
	return a.offer()
}

// MaxHandshakeBody is the most bytes of a body that is looked at for a handshake
// that is not signed.
const MaxHandshakeBody = 16 << 10

// MayHandshake says whether r, of which the body has not been read, may be a
// handshake that is not signed. Where it may, a refusal of CheckHeader is not the
// last word: read up to MaxHandshakeBody bytes and call Receive.
func (v *Verifier) MayHandshake(r Request) bool {
	p := v.Scheme.p
	if p == nil || v.Handshakes.Off {
		return false
	}
	for i := range p.handshakes {
		h := &p.handshakes[i]
		if h.signed || h.method != r.Method {
			continue
		}
		r.Body = nil
		if h.fits(h.read(&r), true) {
			return true
		}
	}
	return false
}

// Handshake answers r if it is a handshake, and says whether it is one. Those that
// their sender signs are verified first. An error is always an [*Error]; with
// false it says nothing of r as a delivery.
func (v *Verifier) Handshake(r Request) (Answer, bool, error) {
	var c check
	if err := c.start(v, &r); err != nil {
		return Answer{}, false, err
	}
	a, ok, err := c.handshake(false)
	if !ok && err == nil && c.p.signedHandshake(&r) && !v.Handshakes.Off {
		if err = c.run(); err == nil {
			a, ok, err = c.handshake(true)
		}
	}
	if err != nil {
		return Answer{}, ok, err
	}
	return a, ok, nil
}

// Receive is Handshake and Verify in one pass. Where Answer.Kind is not empty r is
// a handshake: answer it. Else Envelope and error are those of Verify.
func (v *Verifier) Receive(r Request) (Envelope, Answer, error) {
	var c check
	if err := c.start(v, &r); err != nil {
		return Envelope{}, Answer{}, err
	}
	a, ok, err := c.handshake(false)
	if !ok && err == nil {
		if err = c.run(); err == nil {
			a, _, err = c.handshake(true)
		}
	}
	if err != nil {
		return Envelope{}, Answer{}, err
	}
	c.envelope.Scheme = c.p.recipe.Name
	return c.envelope, a, nil
}

// signedHandshake says whether r may be one, by its method.
func (p *program) signedHandshake(r *Request) bool {
	for i := range p.handshakes {
		if h := &p.handshakes[i]; h.signed && h.method == r.Method {
			return true
		}
	}
	return false
}

// handshake looks for one among those that are signed, once the signature is known
// to be right, or among the others.
func (c *check) handshake(signed bool) (Answer, bool, *Error) {
	if c.v.Handshakes.Off || !signed && len(c.r.Body) > MaxHandshakeBody {
		return Answer{}, false, nil
	}
	for i := range c.p.handshakes {
		h := &c.p.handshakes[i]
		if h.signed != signed || h.method != c.r.Method {
			continue
		}
		values := h.read(&c.r)
		if !h.fits(values, false) {
			continue
		}
		// A sender that has its key signs: this is a delivery.
		if h.kind == kindEnrol && c.hasSignature() {
			continue
		}
		a, ok := c.answer(h, values)
		if !ok {
			return Answer{}, true, c.fail(ReasonHandshakeRefused, "")
		}
		return a, true, nil
	}
	return Answer{}, false, nil
}

// hasSignature says whether the signature's place is filled.
func (c *check) hasSignature() bool {
	for i := range c.p.signature.places {
		p := fieldPlace{place: c.p.signature.places[i]}
		if p.kind != placeHeader {
			return false
		}
		if _, there, err := headerValue(c.r.Header, p.name); there || err != nil {
			return true
		}
	}
	return false
}

// read reads the fields of a handshake.
func (h *handshake) read(r *Request) []Value {
	depth := depthUnverified
	if h.signed {
		depth = depthVerified
	}
	return readFields(*r, depth, h.fields)
}

// fits holds the conditions. Without a body those in JSON are taken to hold.
func (h *handshake) fits(values []Value, bodyless bool) bool {
	for i, c := range h.when {
		v := &values[i]
		switch {
		case bodyless && h.fields[i].p.kind == placeJSON:
		case c.Absent && (v.Kind != KindAbsent || v.Err != nil):
			return false
		case !c.Absent && (v.Err != nil || v.Kind == KindAbsent || v.Text != c.Equals):
			return false
		}
	}
	if h.from < 0 || bodyless && h.fields[h.from].p.kind == placeJSON {
		return true
	}
	// One that is there and cannot be read is a handshake too, and refused.
	v := &values[h.from]
	return v.Kind != KindAbsent || v.Err != nil && h.fields[h.from].p.kind != placeJSON
}

// answer makes the answer, or says that there is none.
func (c *check) answer(h *handshake, values []Value) (Answer, bool) {
	a := Answer{Kind: h.kind, Status: h.status, Header: http.Header{}}
	if h.token >= 0 && !c.tokenFits(&values[h.token]) {
		return a, false
	}
	value := ""
	if h.from >= 0 {
		v := &values[h.from]
		if value = v.Text; v.Err != nil || v.Kind == KindBool || h.pattern != nil && !h.pattern.match(value) {
			return a, false
		}
	}
	var mac []byte
	public := ""
	switch h.kind {
	case kindEchoQuery, kindEchoJSON:
		if !echoable(value) {
			return a, false
		}
	case kindKeyedAnswer:
		key := c.answerKey()
		if key == nil || !keyedValue(value) {
			return a, false
		}
		if mac, public = c.p.answerMAC(key, value); mac == nil {
			return a, false
		}
		a.Keyed = true
	case kindHeaderEcho:
		return a, c.allowOrigin(&a, value)
	case kindEnrol:
		return a, c.enrol(h, &a, value)
	case kindOutbound:
		a.Confirm = value
		return a, confirmable(value)
	}
	if a.Body = h.render(func(token string) string {
		text := value
		switch token {
		case "mac_hex":
			text = hex.EncodeToString(mac)
		case "mac_base64":
			text = base64.StdEncoding.EncodeToString(mac)
		case "public":
			text = public
		}
		if h.contentType == "application/json" {
			return jsonEscape(text)
		}
		return text
	}); len(a.Body) > 0 {
		a.Header["Content-Type"] = []string{h.contentType}
	}
	return a, true
}

func (h *handshake) render(text func(token string) string) []byte {
	var b []byte
	for _, p := range h.body {
		if p.token == "" {
			b = append(b, p.literal...)
		} else {
			b = append(b, text(p.token)...)
		}
	}
	return b
}

// tokenFits compares hashes, so that time says nothing about the token's length.
func (c *check) tokenFits(v *Value) bool {
	d := c.v.Handshakes.Token.data()
	if d == nil || len(d.raw) == 0 || v.Err != nil {
		return false
	}
	want, given := sha256.Sum256(d.raw), sha256.Sum256([]byte(v.Text))
	return hmac.Equal(want[:], given[:])
}

// answerKey is the key that signed the request, or else the newest active one.
func (c *check) answerKey() *Key {
	if c.key != nil {
		return c.key
	}
	active := c.v.Keys.active(c.now, true)
	if active.n == 0 || !c.p.usable(active.keys[0]) {
		return nil
	}
	return active.keys[0]
}

// macs says whether the scheme has a MAC to answer with.
func (p *program) macs() bool {
	return p.code == nil && p.algo.family == familyHMAC || p.code != nil && p.code.answerMAC != nil
}

// answerMAC is the scheme's MAC over a challenge, and the key's public half where
// it has one.
func (p *program) answerMAC(k *Key, value string) (mac []byte, public string) {
	if p.code != nil {
		return p.code.answerMAC(k, value)
	}
	return k.mac(p.algo.hash, []byte(value)), ""
}

// jsonEscape writes s as the inside of a JSON string that is inert in HTML too.
func jsonEscape(s string) string {
	quoted, _ := json.Marshal(s) // of a string it cannot fail
	return string(quoted[1 : len(quoted)-1])
}
