package verify

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func rotationKey(t *rapid.T, i int) Key {
	k, err := NewKey(fmt.Sprintf("k%d", i), fmt.Appendf(nil, "secret of key number %d, of enough bytes", i), SecretSpec{})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// drawSpans are keys whose spans begin and end within ten seconds.
func drawSpans(t *rapid.T) []Key {
	var keys []Key
	for i := range rapid.IntRange(1, maxActive).Draw(t, "keys") {
		k := rotationKey(t, i)
		from := rapid.IntRange(-1, 9).Draw(t, "from") // -1: no bound
		if from >= 0 {
			k.NotBefore = t0.Add(time.Duration(from) * time.Second)
		}
		if to := rapid.IntRange(max(from, 0), 10).Draw(t, "to"); to > from && to < 10 { // 10: no bound
			k.NotAfter = t0.Add(time.Duration(to) * time.Second)
		}
		keys = append(keys, k)
	}
	return keys
}

// What a rotation does to a request, by a model that knows the rule only: a key is
// accepted from its first moment to the one before its end.
func TestRotationByTheClock(t *testing.T) {
	zhisou, _ := Preset("zhisou-v1")
	stripe, _ := Preset("stripe")
	rapid.Check(t, func(t *rapid.T) {
		keys := drawSpans(t)
		signer := rapid.SampledFrom(keys).Draw(t, "signer")
		// At the ends of its span and anywhere, or a nanosecond beside.
		now := rapid.SampledFrom([]time.Time{signer.NotBefore, signer.NotAfter, t0.Add(time.Duration(rapid.IntRange(0, 10).Draw(t, "s")) * time.Second)}).Draw(t, "now")
		if now.IsZero() {
			now = t0
		}
		now = now.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "beside")))
		active := func(k Key) bool {
			return (k.NotBefore.IsZero() || !now.Before(k.NotBefore)) && (k.NotAfter.IsZero() || now.Before(k.NotAfter))
		}
		for _, s := range []Scheme{zhisou, stripe} {
			set, err := NewKeySet(rapid.Permutation(keys).Draw(t, "order")...)
			if err != nil {
				t.Fatal(err)
			}
			ever := signer
			ever.NotBefore, ever.NotAfter = time.Time{}, time.Time{}
			r := Request{Method: "POST", Body: []byte(`{"id":"evt_1"}`)}
			h, err := (&Verifier{Scheme: s}).Sign(r, SignOptions{Key: ever, DeliveryID: "dlv_1", Time: t0})
			if err != nil {
				t.Fatal(err)
			}
			r.Header = h
			v := Verifier{Scheme: s, Keys: set, Now: at(now)}
			env, err := v.Verify(r)
			if (err == nil) != active(signer) {
				t.Fatalf("%s: %v, key active: %v", s.Name(), err, active(signer))
			}
			if err == nil {
				later := slices.ContainsFunc(keys, func(k Key) bool { return k.NotBefore.After(signer.NotBefore) && active(k) })
				if env.KeyID != signer.ID || env.Retiring != (later && !signer.NotAfter.IsZero()) {
					t.Fatalf("%s: %+v", s.Name(), env)
				}
				continue
			}
			want := ReasonKeyExpired
			if !signer.NotBefore.IsZero() && now.Before(signer.NotBefore) {
				want = ReasonKeyNotYetValid
			}
			if e := err.(*Error); e.Reason != want || e.KeyID != signer.ID || !e.MACValid || e.Reason.Code() != "signature_invalid" {
				t.Fatalf("%s: %+v", s.Name(), e)
			}
			// The same request with a MAC that is wrong gives the key's span away to the log alone.
			r.Body = []byte(`{"id":"evt_2"}`)
			if _, err := v.Verify(r); err.(*Error).MACValid || err.(*Error).Reason.Code() != "signature_invalid" {
				t.Fatalf("%s, another body: %v", s.Name(), err)
			}
		}
	})
}

// listSchemes are the presets that may carry several signatures that Sign can make.
func listSchemes() (lists []Scheme) {
	for _, name := range Presets() {
		s, _ := Preset(name)
		p := s.p
		several := p.signature.listSep != 0 || len(p.signature.places) > 1 || s.Recipe().Signature.MultiValue
		if several && p.signature.in == placeHeader && p.algo.family == familyHMAC && p.code == nil && p.keyID.kind == placeNone {
			lists = append(lists, s)
		}
	}
	return lists
}

// In every list scheme neither the order of keys, nor that of candidates, nor how they
// are spread over lines and headers, nor the spelling of their names changes the answer.
func TestAnswerDoesNotHangOnOrder(t *testing.T) {
	lists := listSchemes()
	if len(lists) < 20 {
		t.Fatalf("only %d list schemes", len(lists))
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(lists).Draw(t, "scheme")
		var keys []Key
		for i := range rapid.IntRange(1, maxActive).Draw(t, "keys") {
			keys = append(keys, rotationKey(t, i))
		}
		o := drawOrder(t, s, keys)
		if first, second := o.answer(t), o.answer(t); first != second {
			t.Fatalf("%s: %s and %s", s.Name(), first, second)
		}
	})
}

// ordered is a request whose signatures can be put in any order.
type ordered struct {
	s     Scheme
	keys  []Key
	r     Request  // without the signature header
	items []string // of the signature header
	good  bool     // whether one of them is
}

func drawOrder(t *rapid.T, s Scheme, keys []Key) ordered {
	p := &s.p.signature
	name := http.CanonicalHeaderKey(p.places[0].name)
	o := ordered{s: s, keys: keys, r: Request{Method: "POST", Body: []byte(`{"id":"evt_1"}`)}}
	sign := func(k Key) (fixed []string, candidate string) {
		r := o.r
		r.Header = http.Header{"Box-Signature-Version": {"1"}, "Box-Signature-Algorithm": {"HmacSHA256"}}
		h, err := (&Verifier{Scheme: s}).Sign(r, SignOptions{Key: k, DeliveryID: "dlv_1", Time: t0})
		if err != nil {
			t.Fatal(s.Name(), err)
		}
		value := h[name][0]
		o.r.Header = join(r.Header, h)
		delete(o.r.Header, name)
		if p.kvSep == 0 || p.listSep == 0 {
			return nil, value
		}
		items := strings.Split(value, string(p.listSep))
		return items[:len(items)-1], items[len(items)-1]
	}
	fixed, wrong := sign(rotationKey(t, 9))
	_, right := sign(rapid.SampledFrom(keys).Draw(t, "signer"))
	most := 10
	if len(p.places) > 1 {
		most = len(p.places) - 1
	}
	o.items = slices.Concat(fixed, slices.Repeat([]string{wrong}, rapid.IntRange(1, most).Draw(t, "wrong")))
	if o.good = rapid.Bool().Draw(t, "one is good"); o.good {
		o.items = append(o.items, right)
	}
	return o
}

func (o ordered) answer(t *rapid.T) string {
	set, err := NewKeySet(rapid.Permutation(o.keys).Draw(t, "keys in order")...)
	if err != nil {
		t.Fatal(err)
	}
	p := &o.s.p.signature
	name := rapid.SampledFrom([]func(string) string{strings.ToLower, strings.ToUpper, http.CanonicalHeaderKey}).Draw(t, "spelling")(p.places[0].name)
	items := rapid.Permutation(o.items).Draw(t, "items in order")
	r := o.r
	r.Header = r.Header.Clone()
	switch {
	case len(p.places) > 1:
		for i, item := range items {
			r.Header[p.places[i].name] = []string{item}
		}
	case p.listSep == 0, p.listSep == ',' && rapid.Bool().Draw(t, "each on a line"):
		r.Header[name] = items
	default:
		r.Header[name] = []string{strings.Join(items, string(p.listSep))}
	}
	v := Verifier{Scheme: o.s, Keys: set, Now: at(t0)}
	env, err := v.Verify(r)
	if (err == nil) != o.good {
		t.Fatalf("%s: %v, one is good: %v: %q", o.s.Name(), err, o.good, r.Header)
	}
	return fmt.Sprint(env, err)
}

// Hostile maps have no order, and the answer has none either.
func TestAnswerDoesNotHangOnTheMap(t *testing.T) {
	v := Verifier{Keys: oneKey(t), Now: at(t0)}
	v.Scheme, _ = Preset("zhisou-v1")
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"X-Webhook-Key-Id", "x-webhook-key-id", "X_Webhook_Key_Id", "X-Webhook-Timestamp", "X-WEBHOOK-TIMESTAMP",
			"X-Webhook-Delivery-Id", "X-Webhook-Delivery_Id", "X-Webhook-Signature", "x_webhook_signature"}
		lines := map[string][]string{}
		for _, name := range names {
			if rapid.Bool().Draw(t, name) {
				lines[name] = rapid.SliceOfN(rapid.SampledFrom([]string{"", "k1", "1760000000", "dlv_1", strings.Repeat("0", 64)}), 0, 2).Draw(t, "lines")
			}
		}
		first := ""
		for i := range 8 {
			h := http.Header{}
			for _, name := range rapid.Permutation(names).Draw(t, "order") {
				if l, ok := lines[name]; ok {
					h[name] = l
				}
			}
			_, err := v.Verify(Request{Header: h})
			if text := fmt.Sprintf("%+v", *err.(*Error)); i == 0 {
				first = text
			} else if text != first {
				t.Fatalf("%v: %s and %s", lines, first, text)
			}
		}
	})
}
