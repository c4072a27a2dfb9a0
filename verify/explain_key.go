package verify

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"time"
)

// tryKey is a key to try, and what it would mean if it fitted.
type tryKey struct {
	key      *Key
	faults   int
	list     []departure
	readings []keyReading
}

// keyReading is one way to make bytes of a secret's text; the scheme's own stands
// last.
type keyReading struct {
	secret []byte
	list   []departure
}

// collectKeys lists the source's keys in their order, then those of others that are
// not among them.
func (x *explainer) collectKeys(others []KeySet) {
	for i, set := range append([]KeySet{x.c.v.Keys}, others...) {
		if set.d == nil {
			continue
		}
		for j := range set.d.keys {
			k := &set.d.keys[j]
			d := k.Secret.data()
			if x.c.p.algo.family.shared() != (d.raw != nil) {
				continue
			}
			t := tryKey{key: k}
			if i > 0 {
				if x.knows(k) {
					continue
				}
				t.faults = 1
				t.list = []departure{{"key_other_source", "the key of another source is taken",
					keyName(k) + " of another source of this tenant was used"}}
			}
			if x.c.p.algo.family.shared() && x.c.p.code == nil {
				t.readings = readings(d)
			} else {
				t.readings = []keyReading{{secret: d.raw}}
			}
			x.keys = append(x.keys, t)
		}
	}
}

func (x *explainer) knows(k *Key) bool {
	for i := range x.keys {
		if x.keys[i].key.Secret.Equal(k.Secret) {
			return true
		}
	}
	return false
}

// keyID judges the key that the request names, and brings it to the front. Where it
// names none, keys outside their span are a departure.
func (x *explainer) keyID() {
	id := ""
	if from := &x.c.p.keyID; from.kind != placeNone {
		id, _ = x.c.demand(from)
		if id == "" && from.kind == placeQuery {
			x.missing(from.String(), false)
		}
	}
	if id != "" && len(id) < 32 && keyIDRule(id) == "" {
		x.out.KeyID = id
	}
	named := -1
	for i := range x.keys {
		if t := &x.keys[i]; id != "" && len(t.list) == 0 && (t.key.ID == id || t.key.ID == "" && named < 0) {
			named = i
		}
	}
	if id != "" && named < 0 {
		x.out.KeyNote = "unknown"
		x.add("key_unknown", "give the source that key, or let the sender use one of the source's", "the request names a key that this source does not have")
	}
	for i := range x.keys {
		t := &x.keys[i]
		switch code, text := t.key.outsideSpan(x.c.now); {
		case named >= 0 && t.key.ID == x.keys[named].key.ID && len(t.list) == 0:
			x.out.KeyNote = t.key.note(x.c.now)
			if code != "" && i == named {
				x.addKnown(code, text)
			}
		case named >= 0 && len(t.list) == 0:
			t.faults = 1
			t.list = []departure{{"key_other", "another key is taken", keyName(t.key) + " of this source was used, not the one that the request names"}}
		case code != "" && len(t.list) == 0:
			t.faults = 1
			t.list = []departure{{code, "the span of the key is left aside", text}}
		}
	}
	if named > 0 {
		t := x.keys[named]
		copy(x.keys[1:named+1], x.keys[:named])
		x.keys[0] = t
	}
}

// outsideSpan says how far now is from the key's span; empty inside it.
func (k *Key) outsideSpan(now time.Time) (code, text string) {
	switch {
	case k.Active(now):
		return "", ""
	case now.Before(k.NotBefore):
		return "key_not_yet_valid", keyName(k) + " becomes valid in " + inWords(k.NotBefore.Sub(now))
	}
	return "key_expired", keyName(k) + " expired " + inWords(now.Sub(k.NotAfter)) + " ago"
}

func keyName(k *Key) string {
	if k.ID == "" {
		return "a key"
	}
	return "key " + k.ID
}

func keyPhrase(k *Key) string {
	if k.ID == "" {
		return ""
	}
	return " with key " + k.ID
}

func (k *Key) note(now time.Time) string {
	switch _, text := k.outsideSpan(now); {
	case text != "" && now.Before(k.NotBefore):
		return "known, becomes valid in " + inWords(k.NotBefore.Sub(now))
	case text != "":
		return "known, expired " + inWords(now.Sub(k.NotAfter)) + " ago"
	case !k.NotAfter.IsZero():
		return "known, valid until " + k.NotAfter.UTC().Format(time.DateOnly)
	}
	return "known"
}

// readings are the bytes that a sender may have made of the text of a secret.
func readings(d *secretData) []keyReading {
	var list []keyReading
	add := func(secret []byte, code, once, means string) {
		if len(secret) == 0 || hmac.Equal(secret, d.raw) {
			return
		}
		for _, r := range list {
			if hmac.Equal(r.secret, secret) {
				return
			}
		}
		list = append(list, keyReading{secret, []departure{{code, once, means}}})
	}
	raw, text := string(d.raw), string(d.text)
	bare := strings.TrimRight(text, "\r\n")
	add([]byte(strings.TrimRight(raw, "\r\n")), "key_trailing_newline", "", "")
	add([]byte(raw+"\n"), "key_sender_newline", "", "")
	add([]byte(raw+"\r\n"), "key_sender_newline", "", "")
	behind := bare
	for _, prefix := range append([]string{"whsec_"}, d.spec.StripPrefix...) {
		if rest, ok := strings.CutPrefix(bare, prefix); ok {
			behind = rest
			break
		}
	}
	for _, s := range []string{bare, behind} {
		if b, err := hex.DecodeString(s); err == nil {
			add(b, "key_hex", "the secret is decoded from hex", "the sender used the bytes that the secret is in hex, we use "+d.reads())
		}
	}
	for _, s := range []string{behind, bare} {
		s = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(s), "=")
		if b, err := base64.RawStdEncoding.DecodeString(s); err == nil {
			add(b, "key_base64", "the secret is decoded from base64", "the sender used the bytes that the secret is in base64, we use "+d.reads())
		}
	}
	switch d.spec.Encoding {
	case "hex":
		add([]byte(bare), "key_hex", "the text of the secret is taken", "the sender used the text of the secret, we decode it from hex")
	case "base64", "whsec":
		add([]byte(bare), "key_base64", "the text of the secret is taken", "the sender used the text of the secret, we decode it from base64")
	}
	if behind != bare {
		add([]byte(behind), "key_prefix", "", "")
	}
	return append(list, keyReading{secret: d.raw})
}

// reads says in words how a secret becomes bytes.
func (d *secretData) reads() string {
	switch d.spec.Encoding {
	case "hex":
		return "those it is in hex"
	case "base64", "whsec":
		return "those it is in base64"
	}
	return "its text"
}
