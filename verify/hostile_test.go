package verify

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// good is a request that verifies under a preset.
type good struct {
	name string
	v    *Verifier
	r    Request
	env  Envelope
}

// goodRequests are the valid vectors of every preset; where it has none, what Sign
// makes.
func goodRequests(t testing.TB) (all []good) {
	t.Helper()
	for _, name := range Presets() {
		s, _ := Preset(name)
		n := len(all)
		if slices.Contains(noVectors, name) {
			all = append(all, signedPreset(t, s))
		} else {
			for _, v := range readVectors(t, name+".json") {
				if v.Expect == "valid" && variants[v.Name] == "" {
					fitted := v.fitted(t, s)
					ver, err := v.verifier(fitted)
					if err != nil {
						t.Fatal(v.Name, err)
					}
					all = append(all, good{name: v.Name, v: ver, r: v.request(t)})
				}
			}
		}
		if len(all) == n {
			t.Errorf("%s: no valid request", name)
		}
	}
	for i := range all {
		var err error
		if all[i].env, err = all[i].v.Verify(all[i].r); err != nil {
			t.Fatal(all[i].name, err)
		}
	}
	return all
}

// firsts is one good request for each preset.
func firsts(all []good) (some []good) {
	for _, g := range all {
		if len(some) == 0 || some[len(some)-1].v.Scheme.Name() != g.v.Scheme.Name() {
			some = append(some, g)
		}
	}
	return some
}

// signedPreset signs for presets whose signature is a fixed token.
func signedPreset(t testing.TB, s Scheme) good {
	t.Helper()
	v := &Verifier{Scheme: s, Keys: oneKey(t), Now: at(t0)}
	r := Request{Method: "POST", URL: "/in", Header: http.Header{"Ce-Source": {"/s"}, "Ce-Id": {"1"}}, Body: []byte(`[{"id":"1"}]`)}
	switch s.p.signature.in {
	case placeQuery:
		r.URL += "?" + s.p.signature.places[0].name + "=" + testSecret
	case placeJSON:
		r.Body = []byte(`{"value":[{"clientState":"` + testSecret + `"}]}`)
	default:
		h, err := v.Sign(r, SignOptions{DeliveryID: "1"})
		if err != nil {
			t.Fatal(s.Name(), err)
		}
		r.Header = join(r.Header, h)
	}
	return good{name: s.Name(), v: v, r: r}
}

// line returns the key of the map under which a header stands.
func (g *good) line(name string) string {
	for k := range g.r.Header {
		if spelled(k, name) == spelledRight {
			return k
		}
	}
	return ""
}

func (g *good) with(name string, lines ...string) Request {
	r := g.r
	r.Header = r.Header.Clone()
	delete(r.Header, g.line(name))
	r.Header[name] = lines
	return r
}

// signs says whether another value of the header cannot verify: it is, or is under,
// the signature.
func (g *good) signs(name string) bool {
	is := func(p *place) bool { return p.kind == placeHeader && spelled(p.name, name) == spelledRight }
	p := g.v.Scheme.p
	for i := range p.signature.places {
		if is(&p.signature.places[i]) {
			return len(p.signature.places) == 1
		}
	}
	for i := range p.parts {
		if p.parts[i].kind == partPlace && is(&p.parts[i].place) {
			return true
		}
	}
	for i := range p.require {
		if p.headers[p.require[i].slot].name == name {
			return true
		}
	}
	return false
}

// Whatever stands in a header, there is an answer, it is a refusal where the header
// matters, it repeats nothing of what came, and it costs no more than the header.
func TestHostileValuesInEveryHeaderOfEveryPreset(t *testing.T) {
	values := map[string]string{
		"1 MiB of a":                   strings.Repeat("a", 1<<20),
		"1 MiB of commas":              strings.Repeat(",", 1<<20),
		"1 MiB of blanks":              strings.Repeat(" ", 1<<20),
		"1 MiB of brackets":            strings.Repeat("[({", 1<<20/3),
		"1 MiB of items":               strings.Repeat("v1=0,", 1<<20/5),
		"1 MiB of invalid UTF-8":       strings.Repeat("\xff", 1<<20),
		"invalid UTF-8":                "\xc3\x28\xa0\xa1\xe2\x28\xa1",
		"an overlong slash":            "\xc0\xaf",
		"a lone surrogate":             "\xed\xa0\x80",
		"NUL":                          "\x00",
		"line feeds":                   "a\nforged: b\r\n\r\n",
		"blanks":                       "  \t ",
		"a quote":                      `"`,
		"a percent sign":               "%",
		"minus one":                    "-1",
		"a number beyond 64 bits":      "18446744073709551616",
		"three dots":                   "...",
		"an empty list":                ",",
		"empty base64":                 "====",
		"a right prefix, and no value": "sha256=",
	}
	for _, g := range firsts(goodRequests(t)) {
		for _, name := range g.v.Scheme.Headers() {
			for defect, value := range values {
				r := g.with(name, value)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				env, err := g.v.Verify(r)
				runtime.ReadMemStats(&after)
				if cost := after.TotalAlloc - before.TotalAlloc; cost > 8<<20 {
					t.Errorf("%s, %s is %s: %d bytes", g.name, name, defect, cost)
				}
				if err == nil && g.signs(name) {
					t.Errorf("%s, %s is %s: verifies", g.name, name, defect)
				}
				if err == nil && (len(env.DeliveryID) > maxDeliveryID || len(env.EventType) > maxDeliveryID) {
					t.Errorf("%s, %s is %s: got into the envelope", g.name, name, defect)
				}
				if err != nil && (len(err.Error()) > 300 || strings.ContainsAny(err.Error(), "\x00\n") || !utf8.ValidString(err.Error())) {
					t.Errorf("%s, %s is %s: error %.300q", g.name, name, defect, err)
				}
				// One MiB is too much for any signature, so the body is never asked for.
				if early := g.v.CheckHeader(Request{Method: r.Method, URL: r.URL, Header: r.Header}); len(value) > 1<<19 &&
					g.signs(name) && early == nil && !slices.ContainsFunc(g.v.Scheme.p.parts, func(p part) bool { return p.place.name == name }) {
					t.Errorf("%s, %s is %s: the body is read", g.name, name, defect)
				}
			}
		}
	}
}

// Ten thousand candidates are refused before any is compared, however they are
// written.
func TestTenThousandCandidatesInEveryPreset(t *testing.T) {
	const n = 10000
	for _, g := range firsts(goodRequests(t)) {
		p := &g.v.Scheme.p.signature
		if p.in != placeHeader {
			continue
		}
		name := p.places[0].name
		value := g.r.Header[g.line(name)][0]
		for defect, r := range map[string]Request{
			"commas":                 g.with(name, value+strings.Repeat(","+value, n-1)),
			"commas and blanks":      g.with(name, value+strings.Repeat(", "+value, n-1)),
			"blanks":                 g.with(name, value+strings.Repeat(" "+value, n-1)),
			"semicolons":             g.with(name, value+strings.Repeat(";"+value, n-1)),
			"lines":                  g.with(name, slices.Repeat([]string{value}, n)...),
			"short lines":            g.with(name, append(slices.Repeat([]string{"0"}, n), value)...),
			"short items, the value": g.with(name, strings.Repeat("0,", n)+value),
			"empty lines":            g.with(name, append(make([]string, n), value)...),
		} {
			var e *Error
			early := g.v.CheckHeader(Request{Method: r.Method, URL: r.URL, Header: r.Header})
			_, err := g.v.Verify(r)
			// Empty elements of a list are none, but a dictionary of RFC 8941 has none.
			list := p.listSep == ',' && g.v.Scheme.Recipe().Algo != "code:rfc9421"
			if defect == "empty lines" && (list || g.v.Scheme.Recipe().Signature.MultiValue) {
				if err != nil {
					t.Errorf("%s, %s: %v", g.name, defect, err)
				}
				continue
			}
			if err == nil || early == nil && g.v.Scheme.p.algo.family != familyToken && g.v.Scheme.p.algo.family != familyBasic {
				t.Errorf("%s, %s: %v, headers alone %v", g.name, defect, err, early)
			}
			if e, _ = err.(*Error); e != nil && len(e.Error()) > 300 {
				t.Errorf("%s, %s: %d bytes of error", g.name, defect, len(e.Error()))
			}
		}
	}
}

// Each header that a scheme names may stand once; a comma list may be split at its
// commas.
func TestRepeatedAndSplitLinesInEveryPreset(t *testing.T) {
	split := 0
	for _, g := range firsts(goodRequests(t)) {
		for i, name := range g.v.Scheme.Headers() {
			h := g.v.Scheme.p.headers[i]
			key := g.line(name)
			if key == "" {
				continue
			}
			value := g.r.Header[key][0]
			twin := g.with(name, value)
			twin.Header[strings.ReplaceAll(name, "-", "_")] = []string{value}
			if strings.Contains(name, "-") {
				if _, err := g.v.Verify(twin); reasonOf(err) != ReasonHeaderDuplicated {
					t.Errorf("%s: %s beside its underscore spelling: %v", g.name, name, err)
				}
			}
			other := g.with(name, value)
			other.Header[strings.ToUpper(name)] = []string{value}
			other.Header[strings.ToLower(name)] = []string{value}
			if _, err := g.v.Verify(other); reasonOf(err) != ReasonHeaderDuplicated {
				t.Errorf("%s: %s in two keys of the map: %v", g.name, name, err)
			}
			if h.list {
				for at := range len(value) {
					if value[at] == ',' {
						split++
						if env, err := g.v.Verify(g.with(name, value[:at], value[at+1:])); err != nil || env != g.env {
							t.Errorf("%s: %s split at a comma: %v", g.name, name, err)
						}
					}
				}
				continue
			}
			if h.multi {
				continue
			}
			for _, lines := range [][]string{{value, value}, {value, "x"}, {"x", value}, {value, ""}, {"", value}} {
				if _, err := g.v.Verify(g.with(name, lines...)); reasonOf(err) != ReasonHeaderDuplicated {
					t.Errorf("%s: %s on two lines %.60q: %v", g.name, name, lines, err)
				}
			}
		}
	}
	if split < 3 {
		t.Errorf("only %d lists were split", split)
	}
}

// One bit of the body, of a header under the signature, or of the signature, and
// nothing verifies.
func TestOneChangedBitNeverVerifies(t *testing.T) {
	for _, g := range firsts(goodRequests(t)) {
		g = g.alone()
		p := g.v.Scheme.p
		if p.bodySigned {
			for i := range g.r.Body { // bytes are hashed as they are, so a bit of each will do
				r := g.r
				r.Body = slices.Clone(r.Body)
				r.Body[i] ^= 1 << (i % 8)
				if _, err := g.v.Verify(r); err == nil {
					t.Errorf("%s: bit %d of byte %d of the body", g.name, i%8, i)
				}
			}
		}
		for _, name := range g.v.Scheme.Headers() {
			key := g.line(name)
			if key == "" || !g.signs(name) {
				continue
			}
			value := g.r.Header[key][0]
			for i := range len(value) {
				for bit := range 8 {
					changed := value[:i] + string(value[i]^1<<bit) + value[i+1:]
					if _, err := g.v.Verify(g.with(name, changed)); err == nil && !(p.signature.encoding == encHexAny && strings.EqualFold(value, changed)) {
						t.Errorf("%s: bit %d of byte %d of %s", g.name, bit, i, name)
					}
				}
			}
		}
	}
}

// alone leaves out of signature lists what is not needed to verify.
func (g good) alone() good {
	p := &g.v.Scheme.p.signature
	for i := range p.places {
		if p.in != placeHeader || p.listSep == 0 || g.line(p.places[i].name) == "" {
			continue
		}
		name := g.line(p.places[i].name)
		items := strings.Split(strings.Join(g.r.Header[name], string(p.listSep)), string(p.listSep))
		for n := len(items) - 1; n >= 0; n-- {
			fewer := slices.Delete(slices.Clone(items), n, n+1)
			r := g.with(name, strings.Join(fewer, string(p.listSep)))
			if _, err := g.v.Verify(r); err == nil {
				items, g.r = fewer, r
			}
		}
	}
	return g
}

// The ends of the window belong to it, on both sides, in every scheme that has one.
func TestBothEndsOfTheWindowInEveryPreset(t *testing.T) {
	windows := 0
	for _, g := range goodRequests(t) {
		spec := g.v.Scheme.p.timestamp
		if spec == nil || slices.Contains(byExpiry, g.v.Scheme.Name()) {
			continue
		}
		for _, own := range []time.Duration{0, time.Second, 1234567 * time.Millisecond} {
			v := *g.v
			v.Tolerance = own
			window := spec.window
			if own != 0 {
				window = own
			}
			judge := func(distance time.Duration, want bool) {
				t.Helper()
				v.Now = at(g.env.Time.Add(-distance))
				env, err := v.Verify(g.r)
				if want && (err != nil || env.Distance != distance) || !want && reasonOf(err) != ReasonTimestampOutOfWindow {
					t.Errorf("%s, tolerance %s: %s from now: %v", g.name, window, distance, err)
				}
			}
			if window == 0 {
				judge(-200*365*24*time.Hour, true)
				judge(200*365*24*time.Hour, true)
				continue
			}
			windows++
			future := window
			if spec.pastOnly {
				future = max(window, 300*time.Second)
			}
			judge(-window, true)
			judge(-window-1, false)
			judge(future, true)
			judge(future+1, false)
			judge(0, true)
			judge(-1<<62, false)
			judge(1<<62, false)
		}
	}
	if windows < 100 {
		t.Errorf("only %d windows", windows)
	}
}

// byExpiry are schemes whose tokens say themselves until when they hold.
var byExpiry = []string{"bird-jwt", "monday"}

// Such a token holds from nbf, included, to exp, excluded, and the tolerance is what
// the clocks may differ by.
func TestBothEndsOfATokensSpan(t *testing.T) {
	ends := 0
	for _, g := range goodRequests(t) {
		if !slices.Contains(byExpiry, g.v.Scheme.Name()) {
			continue
		}
		token := strings.Split(g.r.Header[g.line(g.v.Scheme.p.signature.places[0].name)][0], ".")
		text, err := base64.RawURLEncoding.DecodeString(token[1])
		if err != nil {
			t.Fatal(g.name, err)
		}
		var claims struct{ Nbf, Exp int64 }
		if err := json.Unmarshal(text, &claims); err != nil {
			t.Fatal(g.name, err)
		}
		for _, own := range []time.Duration{0, 7 * time.Second} {
			v := *g.v
			v.Tolerance = own
			tolerance := own
			if p := g.v.Scheme.p.timestamp; own == 0 && p != nil {
				tolerance = p.window
			}
			judge := func(now time.Time, want bool) {
				t.Helper()
				v.Now = at(now)
				_, err := v.Verify(g.r)
				if want && err != nil || !want && reasonOf(err) != ReasonTimestampOutOfWindow {
					t.Errorf("%s, tolerance %s, at %s: %v", g.name, tolerance, now, err)
				}
			}
			if claims.Nbf != 0 {
				judge(time.Unix(claims.Nbf, 0).Add(-tolerance), true)
				judge(time.Unix(claims.Nbf, 0).Add(-tolerance-1), false)
				judge(time.Time{}, false)
			}
			judge(time.Unix(claims.Exp, 0).Add(tolerance-1), true)
			judge(time.Unix(claims.Exp, 0).Add(tolerance), false)
			judge(time.Unix(1<<40, 0), false)
			ends++
		}
	}
	if ends < 4 {
		t.Errorf("only %d spans", ends)
	}
}

// What verifies, signed again at that time and under that id, has the same MAC.
func TestWhatVerifiesSignsEqualAgain(t *testing.T) {
	again := map[string]bool{}
	for _, g := range goodRequests(t) {
		p := g.v.Scheme.p
		if p.signature.in != placeHeader || !p.algo.family.shared() || p.code != nil {
			continue
		}
		if p.timestamp != nil && p.timestamp.format.format(g.env.Time) != g.env.Timestamp {
			continue // written otherwise than we would
		}
		bare := g.r
		bare.Header = bare.Header.Clone()
		for _, place := range p.signature.places {
			delete(bare.Header, g.line(place.name))
		}
		if p.timestamp != nil && p.timestamp.from.kind == placeHeader {
			delete(bare.Header, g.line(p.timestamp.from.name))
		}
		if p.keyID.kind == placeHeader {
			delete(bare.Header, g.line(p.keyID.name))
		}
		if p.id != nil && p.id.template == nil && p.id.from[0].kind == placeHeader {
			delete(bare.Header, g.line(p.id.from[0].name))
		}
		v := *g.v
		k := v.Keys.Keys()[0]
		if p.keyID.kind != placeNone {
			k.ID = g.r.Header[g.line(p.keyID.name)][0]
		}
		o := SignOptions{Key: k, DeliveryID: g.env.DeliveryID, Time: g.env.Time}
		if p.timestamp == nil {
			o.Time = g.v.Now()
		}
		h, err := v.Sign(bare, o)
		if err != nil {
			t.Errorf("%s: %v", g.name, err)
			continue
		}
		name := http.CanonicalHeaderKey(p.signature.places[0].name)
		made := h[name][0]
		mac := made[len(made)-min(len(made), base64.StdEncoding.EncodedLen(hashes[p.algo.hash].size)):]
		was := ""
		for _, place := range p.signature.places {
			was += fmt.Sprint(g.r.Header[g.line(place.name)])
		}
		if !strings.Contains(was, mac) && !(p.signature.encoding == encHexAny && strings.Contains(strings.ToLower(was), mac)) && len(v.Keys.Keys()) == 1 {
			t.Errorf("%s: signs %s, was %s", g.name, made, was)
		}
		again[g.v.Scheme.Name()] = true
	}
	if len(again) < 60 {
		t.Errorf("only %d schemes", len(again))
	}
}
