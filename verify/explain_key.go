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
				t.list = []departure{{code: "key_other_source", once: "the key of another source is taken",
					means: keyName(k) + " of another source of this tenant was used"}}
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
			x.missing(from.String())
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
		text := "the request names a key that this source does not have"
		if x.out.KeyID != "" {
			text = "the request names key " + x.out.KeyID + ", which this source does not have"
		}
		x.add("key_unknown", "give the source that key, or let the sender use one of the source's", "%s", text)
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
			t.list = []departure{{code: "key_other", once: "another key is taken",
				means: keyName(t.key) + " of this source was used, not the one that the request names"}}
		case code != "" && len(t.list) == 0:
			t.faults = 1
			t.list = []departure{{code: code, once: "the span of the key is left aside", means: text}}
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
	add := func(secret []byte, taken departure) {
		if len(secret) == 0 || hmac.Equal(secret, d.raw) {
			return
		}
		for _, r := range list {
			if hmac.Equal(r.secret, secret) {
				return
			}
		}
		list = append(list, keyReading{secret, []departure{taken}})
	}
	raw, text := string(d.raw), string(d.text)
	bare := strings.TrimRight(text, "\r\n")
	add([]byte(strings.TrimRight(raw, "\r\n")), departure{code: "key_trailing_newline"})
	add([]byte(raw+"\n"), departure{code: "key_sender_newline"})
	add([]byte(raw+"\r\n"), departure{code: "key_sender_newline"})
	behind := bare
	for _, prefix := range append([]string{"whsec_"}, d.spec.StripPrefix...) {
		if rest, ok := strings.CutPrefix(bare, prefix); ok {
			behind = rest
			break
		}
	}
	for _, s := range []string{bare, behind} {
		if b, err := hex.DecodeString(s); err == nil {
			add(b, d.readAs("hex"))
		}
	}
	coded := "base64"
	if strings.HasPrefix(bare, "whsec_") {
		coded = "whsec"
	}
	for _, s := range []string{behind, bare} {
		s = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(s), "=")
		if b, err := base64.RawStdEncoding.DecodeString(s); err == nil {
			add(b, d.readAs(coded))
		}
	}
	if d.spec.Encoding != "" && d.spec.Encoding != "utf8" {
		add([]byte(bare), d.readAs("utf8"))
	}
	if behind != bare {
		add([]byte(behind), departure{"key_prefix", "the prefix of the secret is cut and the rest taken as text",
			"the sender cut the prefix of the secret and used the rest as text", d.use()})
	}
	return append(list, keyReading{secret: d.raw})
}

// secretWays says of each encoding what is used, and how.
var secretWays = map[string]struct{ once, used, use string }{
	"":       {"the text of the secret is taken", "the text of the secret", "use the whole text of the secret"},
	"utf8":   {"the text of the secret is taken", "the text of the secret", "use the whole text of the secret"},
	"hex":    {"the secret is decoded from hex", "the bytes that the secret is in hex", "decode the secret from hex"},
	"base64": {"the secret is decoded from base64", "the bytes that the secret is in base64", "decode the secret from base64"},
	"whsec":  {"the secret is decoded from base64", "the bytes that the secret is in base64", "decode what stands behind whsec_ from base64"},
}

// readAs is the reading of a secret in another encoding than ours.
func (d *secretData) readAs(encoding string) departure {
	code := "key_base64"
	if encoding == "hex" || encoding == "utf8" && d.spec.Encoding == "hex" {
		code = "key_hex"
	}
	theirs := secretWays[encoding]
	return departure{code, theirs.once, "the sender used " + theirs.used + ", we use " + secretWays[d.spec.Encoding].used,
		"set encoding: " + encoding + " for our key, or " + d.use()}
}

// use is what the sender should do with the secret.
func (d *secretData) use() string {
	use := secretWays[d.spec.Encoding].use
	if len(d.spec.StripPrefix) > 0 {
		use = strings.Replace(use, "the secret", "the secret without its prefix", 1)
	}
	return use + " at the sender"
}
