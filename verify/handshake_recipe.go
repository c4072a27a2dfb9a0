package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// HandshakeRecipe is a request of the sender that is no delivery, and its answer:
// a challenge when a hook is made, a ping, the hand-over of a secret. The first of
// a recipe's list that fits a request is it.
type HandshakeRecipe struct {
	// Kind fixes how the answer is bounded:
	//
	//	echo_query    the value of the query, as plain text
	//	echo_json     Answer.Body with the value
	//	keyed_answer  Answer.Body with a MAC over the value, under the signing key
	//	header_echo   to a known origin, that it may send, as CloudEvents ask
	//	enrol         takes the value as the secret, see Handshakes.EnrolUntil
	//	status        Answer.Status alone, or with a body that is always the same
	//	outbound      the value is a URL of SNS or Event Grid to call, see Answer.Confirm
	Kind string `json:"kind"`
	// Method is GET, HEAD, OPTIONS or POST. Defaults to POST.
	Method string `json:"method,omitempty"`
	// When are conditions beside the method; From must be there too.
	When []Condition `json:"when,omitempty"`
	// Verify is "signature": the request must be signed as a delivery is; or the
	// place of a token, such as query:hub.verify_token, which is compared with
	// Handshakes.Token; or empty.
	Verify string `json:"verify,omitempty"`
	// From is the place of the value that is answered: header:X, json:a.b or query:x.
	From string `json:"from,omitempty"`
	// Pattern must match the whole value. It narrows the bounds of the kind.
	Pattern string           `json:"pattern,omitempty"`
	Answer  *HandshakeAnswer `json:"answer,omitempty"`
}

// Condition is a place that must hold this text, or nothing.
type Condition struct {
	From   string `json:"from"` // header:X, json:a.b or query:x
	Equals string `json:"equals,omitempty"`
	Absent bool   `json:"absent,omitempty"`
}

// HandshakeAnswer is what the sender reads.
type HandshakeAnswer struct {
	Status int    `json:"status,omitempty"` // 200 or 204. Defaults to 200
	Type   string `json:"type,omitempty"`   // text/plain or application/json. Defaults to text/plain
	// Body is literal text and the tokens {value} {mac_hex} {mac_base64} {public}.
	Body string `json:"body,omitempty"`
}

// The kinds of handshakes.
const (
	kindEchoQuery   = "echo_query"
	kindEchoJSON    = "echo_json"
	kindKeyedAnswer = "keyed_answer"
	kindHeaderEcho  = "header_echo"
	kindEnrol       = "enrol"
	kindStatus      = "status"
	kindOutbound    = "outbound"
)

// HandshakeKinds returns the closed list, for metrics that want every label at once.
func HandshakeKinds() []string {
	return []string{kindEchoQuery, kindEchoJSON, kindKeyedAnswer, kindHeaderEcho, kindEnrol, kindStatus, kindOutbound}
}

const maxHandshakes = 8

// handshake is the compiled form of HandshakeRecipe.
type handshake struct {
	kind, method string
	fields       []Field // what the conditions, the token and the value are read from
	when         []Condition
	signed       bool // the request must verify
	token, from  int  // index into fields, -1: none
	pattern      *pattern
	status       int
	contentType  string
	body         []answerPart
}

type answerPart struct {
	literal string
	token   string // "" for a literal
}

func (b *builder) handshake() error {
	if len(b.r.Handshake) > maxHandshakes {
		return fmt.Errorf("more than %d", maxHandshakes)
	}
	for i := range b.r.Handshake {
		h, err := b.oneHandshake(&b.r.Handshake[i])
		if err != nil {
			return in(fmt.Sprintf("[%d]", i), err)
		}
		b.p.handshakes = append(b.p.handshakes, h)
		b.p.keyedAnswers = b.p.keyedAnswers || h.kind == kindKeyedAnswer
	}
	return nil
}

// handshakeRule is what a kind allows.
type handshakeRule struct {
	methods []string
	from    []string // kinds of places; none: there is no value
	verify  []string // "", signature, token
	answer  bool     // the recipe says what the body is
	tokens  []string // of the body
}

// handshakeRules keep kinds apart: an answer that depends on the key never has the
// freedom of one that does not, and what is not signed never answers a POST with
// more than a bounded copy of itself.
func handshakeRules(kind string) (handshakeRule, bool) {
	switch kind {
	case kindEchoQuery:
		return handshakeRule{methods: []string{"GET", "POST"}, from: []string{"query"}, verify: []string{"", "token"}}, true
	case kindEchoJSON:
		return handshakeRule{methods: []string{"GET", "POST"}, from: []string{"json", "header"}, verify: []string{"", "token", "signature"},
			answer: true, tokens: []string{"value"}}, true
	case kindKeyedAnswer:
		return handshakeRule{methods: []string{"GET", "POST"}, from: []string{"json", "query"}, verify: []string{"", "signature"},
			answer: true, tokens: []string{"value", "mac_hex", "mac_base64", "public"}}, true
	case kindHeaderEcho:
		return handshakeRule{methods: []string{"OPTIONS"}, from: []string{"header"}, verify: []string{""}}, true
	case kindEnrol:
		return handshakeRule{methods: []string{"POST"}, from: []string{"header", "json"}, verify: []string{""}}, true
	case kindStatus:
		return handshakeRule{methods: []string{"GET", "HEAD", "POST"}, verify: []string{"", "signature"}, answer: true}, true
	case kindOutbound:
		return handshakeRule{methods: []string{"POST"}, from: []string{"json"}, verify: []string{"signature"}}, true
	}
	return handshakeRule{}, false
}

func (b *builder) oneHandshake(r *HandshakeRecipe) (handshake, error) {
	rule, ok := handshakeRules(r.Kind)
	if !ok {
		return handshake{}, wrongf("kind", "unknown value %q", r.Kind)
	}
	h := handshake{kind: r.Kind, method: cmp.Or(r.Method, "POST"), token: -1, from: -1}
	if !slices.Contains([]string{"GET", "HEAD", "OPTIONS", "POST"}, h.method) {
		return h, wrongf("method", "unknown value %q", h.method)
	}
	if !slices.Contains(rule.methods, h.method) {
		return h, wrongf("method", "%s does not go with %s", h.method, h.kind)
	}
	if err := b.handshakePlaces(&h, r, rule); err != nil {
		return h, err
	}
	if r.Pattern != "" {
		if h.from < 0 {
			return h, wrongf("pattern", "without from")
		}
		var err error
		if h.pattern, err = compilePattern(r.Pattern); err != nil {
			return h, in("pattern", err)
		}
	}
	if err := h.answer(r.Answer, rule); err != nil {
		return h, in("answer", err)
	}
	return h, b.handshakeKind(&h, r)
}

func (b *builder) handshakePlaces(h *handshake, r *HandshakeRecipe, rule handshakeRule) error {
	add := func(s string, kinds ...string) (int, error) {
		kind, _, _ := strings.Cut(s, ":")
		if !slices.Contains(kinds, kind) {
			return -1, fmt.Errorf("%q is none of the places %s", s, strings.Join(kinds, ", "))
		}
		if kind == "json" && h.method != "POST" {
			return -1, fmt.Errorf("%s has no body", h.method)
		}
		f, err := ParseField(s)
		if err != nil {
			return -1, err
		}
		h.fields = append(h.fields, f)
		return len(h.fields) - 1, nil
	}
	for i, c := range r.When {
		if _, err := add(c.From, "header", "json", "query"); err != nil {
			return wrongf(fmt.Sprintf("when[%d].from", i), "%w", err)
		}
		if (c.Equals == "") != c.Absent {
			return wrongf(fmt.Sprintf("when[%d]", i), "is one of equals and absent")
		}
		h.when = append(h.when, c)
	}
	verify := r.Verify
	if verify != "" && verify != "signature" {
		var err error
		if h.token, err = add(verify, "header", "json", "query"); err != nil {
			return in("verify", err)
		}
		verify = "token"
	}
	if !slices.Contains(rule.verify, verify) || verify == "signature" && h.method != "POST" {
		return wrongf("verify", "%q does not go with %s by %s", r.Verify, h.kind, h.method)
	}
	h.signed = verify == "signature"
	if len(rule.from) == 0 {
		if r.From != "" {
			return wrongf("from", "does not go with %s", h.kind)
		}
		return nil
	}
	var err error
	h.from, err = add(r.From, rule.from...)
	return in("from", err)
}

// handshakeKind holds what the parts of a handshake demand of one another.
func (b *builder) handshakeKind(h *handshake, r *HandshakeRecipe) error {
	switch h.kind {
	case kindKeyedAnswer:
		if !b.p.macs() {
			return wrongf("kind", "%s needs an algorithm of HMAC, not %s", h.kind, b.r.Algo)
		}
		if h.fields[h.from].p.kind == placeJSON && !h.signed {
			return wrongf("verify", "a value in the body is answered under the key only if it is signed")
		}
		if !b.signsMore() {
			return wrongf("kind", "the template signs nothing that a challenge cannot hold: an answer would be the signature of a delivery")
		}
	case kindEnrol:
		if !b.p.algo.family.shared() {
			return wrongf("kind", "%s needs a shared secret, not %s", h.kind, b.r.Algo)
		}
		if b.p.signature.in != placeHeader {
			return wrongf("kind", "%s needs the signature in a header: by that a delivery is told from it", h.kind)
		}
	case kindStatus:
		if h.method == "POST" && !h.signed {
			return wrongf("verify", "a POST that is not signed is never answered as a success")
		}
		if h.method == "HEAD" && len(h.body) > 0 {
			return wrongf("answer", "HEAD has no body")
		}
	case kindOutbound:
		if r.Pattern == "" {
			return wrongf("pattern", "is missing: which URLs may be called?")
		}
	}
	inDelivery := h.method == "POST" && (h.from < 0 || h.fields[h.from].p.kind != placeQuery)
	if inDelivery && len(h.when) == 0 && h.kind != kindEnrol { // which is told by the signature
		return wrongf("when", "is missing: a delivery that holds such a value too would be taken for a handshake")
	}
	return nil
}

// signsMore says whether deliveries are signed with more than [keyedValue] lets
// through. Where they are not, [check.challenge] would refuse each of them.
func (b *builder) signsMore() bool {
	return b.p.code != nil || slices.ContainsFunc(b.p.parts, func(p part) bool {
		return p.kind == partBody || p.kind == partURL || p.kind == partLiteral && !keyedValue(p.text)
	})
}

func (h *handshake) answer(a *HandshakeAnswer, rule handshakeRule) error {
	h.status, h.contentType = 200, "text/plain"
	if h.kind == kindEchoQuery {
		h.body = []answerPart{{token: "value"}}
	}
	if a == nil {
		if len(rule.tokens) > 0 {
			return fmt.Errorf("is missing")
		}
		return nil
	}
	if !rule.answer {
		return fmt.Errorf("does not go with %s, which fixes it", h.kind)
	}
	h.status, h.contentType = cmp.Or(a.Status, h.status), cmp.Or(a.Type, h.contentType)
	if h.status != 200 && h.status != 204 {
		return wrongf("status", "%d is not 200 or 204", h.status)
	}
	if h.contentType != "text/plain" && h.contentType != "application/json" {
		return wrongf("type", "unknown value %q", h.contentType)
	}
	if h.status == 204 && a.Body != "" {
		return wrongf("body", "204 has none")
	}
	var err error
	if h.body, err = parseAnswer(a.Body, rule.tokens); err != nil {
		return in("body", err)
	}
	if len(rule.tokens) > 0 && !slices.ContainsFunc(h.body, func(p answerPart) bool { return p.token != "" }) {
		return wrongf("body", "has no token: {value} …")
	}
	if h.contentType == "application/json" {
		text := h.render(func(string) string { return "x" })
		if s := (jsonScanner{text: text, depth: depthUnverified}); s.value(0, 0) != nil || s.i != len(text) {
			return wrongf("body", "is not JSON")
		}
	}
	return nil
}

// parseAnswer splits a body into literals and tokens. Braces of JSON stay what
// they are: only a word alone between two is a token.
func parseAnswer(s string, tokens []string) ([]answerPart, error) {
	if len(s) > 1024 {
		return nil, fmt.Errorf("is longer than 1024 bytes")
	}
	var parts []answerPart
	literal := 0
	for i := 0; i < len(s); i++ {
		if s[i] != '{' {
			continue
		}
		word, _, ok := strings.Cut(s[i+1:], "}")
		if !ok || word == "" || strings.Trim(word, "abcdefghijklmnopqrstuvwxyz_0123456789") != "" {
			continue
		}
		if !slices.Contains(tokens, word) {
			return nil, fmt.Errorf("unknown token {%s}", word)
		}
		if i > literal {
			parts = append(parts, answerPart{literal: s[literal:i]})
		}
		parts = append(parts, answerPart{token: word})
		i += len(word) + 1
		literal = i + 1
	}
	if literal < len(s) {
		parts = append(parts, answerPart{literal: s[literal:]})
	}
	return parts, nil
}

func (r *HandshakeRecipe) clone() HandshakeRecipe {
	c := *r
	c.When = slices.Clone(r.When)
	c.Answer = clonePointer(r.Answer)
	return c
}
