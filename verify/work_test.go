package verify

import (
	"fmt"
	"hash"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// countingHash counts what is done under all keys.
type countingHash struct {
	hash.Hash
	bytes, sums *atomic.Int64
}

func (c countingHash) Write(p []byte) (int, error) {
	c.bytes.Add(int64(len(p)))
	return c.Hash.Write(p)
}
func (c countingHash) Sum(b []byte) []byte { c.sums.Add(1); return c.Hash.Sum(b) }

// An unknown key, an expired one, one of tomorrow and a wrong MAC cost the same work,
// so that time does not tell them apart. Work is counted here and timed in
// BenchmarkRefusals.
func TestRefusalsDoEqualWork(t *testing.T) {
	var written, sums atomic.Int64
	usual := hashes[hashSHA256].new
	hashes[hashSHA256].new = func() hash.Hash { return countingHash{usual(), &written, &sums} }
	defer func() { hashes[hashSHA256].new = usual }()

	work := func(name string, change func(v *Verifier, r *Request), want Reason) [2]int64 {
		v := benchVerifier(t, "zhisou-v1", 2)
		r := benchRequest(t, v, 1536)
		change(v, &r)
		v.Verify(r) // makes the states that are kept
		bytes, calls := written.Load(), sums.Load()
		if _, err := v.Verify(r); reasonOf(err) != want {
			t.Fatalf("%s: %v, want %s", name, err, want)
		}
		return [2]int64{written.Load() - bytes, sums.Load() - calls}
	}
	spans := func(from, to time.Duration) func(*Verifier, *Request) {
		return func(v *Verifier, r *Request) {
			keys := v.Keys.Keys()
			for i := range keys {
				if from != 0 {
					keys[i].NotBefore = v.Now().Add(from)
				}
				if to != 0 {
					keys[i].NotAfter = v.Now().Add(to)
				}
			}
			v.Keys, _ = NewKeySet(keys...)
		}
	}
	wrong := func(_ *Verifier, r *Request) { r.Header["X-Webhook-Signature"] = []string{strings.Repeat("0", 64)} }
	want := work("wrong MAC", wrong, ReasonSignatureMismatch)
	if want[0] < 1536 {
		t.Fatalf("%d bytes hashed", want[0])
	}
	for _, c := range []struct {
		name   string
		change func(*Verifier, *Request)
		reason Reason
	}{
		{"first byte of the MAC right", func(_ *Verifier, r *Request) {
			h := r.Header["X-Webhook-Signature"][0]
			r.Header["X-Webhook-Signature"] = []string{h[:2] + strings.Repeat("0", 62)}
		}, ReasonSignatureMismatch},
		{"last byte of the MAC wrong", func(_ *Verifier, r *Request) {
			h := r.Header["X-Webhook-Signature"][0]
			r.Header["X-Webhook-Signature"] = []string{h[:62] + string(h[62]^1) + h[63:]}
		}, ReasonSignatureMismatch},
		{"unknown key", func(_ *Verifier, r *Request) { r.Header["X-Webhook-Key-Id"] = []string{"k9"} }, ReasonKeyUnknown},
		{"expired key", spans(0, -time.Second), ReasonKeyExpired},
		{"expired key, wrong MAC", func(v *Verifier, r *Request) { wrong(v, r); spans(0, -time.Second)(v, r) }, ReasonKeyExpired},
		{"key of tomorrow", spans(time.Hour, 0), ReasonKeyNotYetValid},
	} {
		if got := work(c.name, c.change, c.reason); got != want {
			t.Errorf("%s: %d bytes, %d sums; a wrong MAC %v", c.name, got[0], got[1], want)
		}
	}
}

// Of a public key the check itself is counted, by what it allocates.
func TestUnknownPublicKeyIsCheckedToo(t *testing.T) {
	private, public := ecdsaKey(t, "k1")
	s := compile(t, `{"algo":"ecdsa-p256-sha256","key_id":{"from":"header:K"},"signature":{"name":"S","encoding":"base64"},"template":"{body}"}`)
	v := &Verifier{Scheme: s, Keys: testSet(t, public)}
	r := Request{Method: "POST", Body: []byte("x")}
	h, err := v.Sign(r, SignOptions{Key: private})
	if err != nil {
		t.Fatal(err)
	}
	work := func(id, body string, want Reason) float64 {
		r := Request{Method: "POST", Body: []byte(body), Header: http.Header{"S": h["S"], "K": {id}}}
		if _, err := v.Verify(r); reasonOf(err) != want {
			t.Fatalf("%s: %v, want %s", id, err, want)
		}
		return testing.AllocsPerRun(20, func() { v.Verify(r) })
	}
	known := work("k1", "y", ReasonSignatureMismatch)
	// Signed by the key that is checked, but not named by it.
	for _, body := range []string{"x", "y"} {
		if unknown := work("k9", body, ReasonKeyUnknown); unknown < known-2 {
			t.Errorf("body %s: %v allocations, %v with a key that is there", body, unknown, known)
		}
	}
}

// Without a key id every active key is tried, though the first fits, and so are the
// others when none does.
func TestEveryKeyIsTriedWithoutAKeyID(t *testing.T) {
	var written, sums atomic.Int64
	usual := hashes[hashSHA256].new
	hashes[hashSHA256].new = func() hash.Hash { return countingHash{usual(), &written, &sums} }
	defer func() { hashes[hashSHA256].new = usual }()
	for signer := range 4 {
		v := benchVerifier(t, "stripe", 4)
		r := Request{Method: "POST", Body: make([]byte, 1536)}
		h, err := v.Sign(r, SignOptions{Key: v.Keys.Keys()[signer]})
		if err != nil {
			t.Fatal(err)
		}
		r.Header = h
		before := written.Load()
		if env, err := v.Verify(r); err != nil || env.KeyID != fmt.Sprintf("k%d", signer+1) {
			t.Fatalf("%+v, %v", env, err)
		}
		if n := written.Load() - before; n < 4*1536 {
			t.Errorf("signed by key %d of 4: %d bytes hashed", signer+1, n)
		}
	}
}

// All candidates are compared with all keys: that an older key's signature comes first
// in the list does not end the search, and the newest key that fits is named.
func TestNewestKeyIsNamedInAnyOrderOfSignatures(t *testing.T) {
	older, newer := testKey(t, "k1", -7200, 3600), testKey(t, "k2", -3600, 0)
	for name, header := range map[string]string{"pagerduty": "X-Pagerduty-Signature", "standard-webhooks": "Webhook-Signature"} {
		r, s := signed(t, name, newer)
		other, _ := signed(t, name, older)
		v := Verifier{Scheme: s, Keys: testSet(t, older, newer), Now: at(t0)}
		one, two := r.Header.Get(header), other.Header.Get(header)
		for _, both := range [][]string{{one, two}, {two, one}} {
			r.Header.Set(header, strings.Join(both, s.Recipe().Signature.ListSep))
			if env, err := v.Verify(r); err != nil || env.KeyID != "k2" || env.Retiring {
				t.Errorf("%s: %+v, %v: %s", name, env, err, both)
			}
		}
	}
}
