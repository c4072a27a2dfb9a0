package verify

// digestKind is how a secret and a text are made into a signature.
type digestKind struct {
	hash  int
	plain bool // the secret is hashed before the text
	list  []departure
}

// hashCodes are the hashes that a length is taken for. SHA-384 is not among them: 64
// hex characters are 48 bytes in base64.
var hashCodes = [...]struct{ code, name string }{
	hashSHA1: {"hash_sha1", "SHA-1"}, hashSHA256: {"hash_sha256", "SHA-256"}, hashSHA512: {"hash_sha512", "SHA-512"},
}

// digestKinds follow from the lengths that arrived, the scheme's own last.
func (x *explainer) digestKinds() []digestKind {
	family, own := x.c.p.algo.family, x.c.p.algo.hash
	if family != familyHMAC && family != familyHash {
		return []digestKind{{}}
	}
	var first, last []digestKind
	for h, known := range hashCodes {
		there := false
		for i := range x.signatures {
			there = there || len(x.signatures[i].sum) == hashes[h].size
		}
		if !there {
			continue
		}
		var list []departure
		if h != own {
			list = []departure{{known.code, known.name + " is used", "the sender signed with " + known.name + ", the scheme's hash is " + hashCodes[own].name,
				"sign with " + hashCodes[own].name + " at the sender"}}
		}
		k := digestKind{hash: h, list: list}
		if family == familyHMAC {
			plain := digestKind{h, true, append(list[:len(list):len(list)], departure{code: "hash_plain"})}
			first = append(first, plain)
		}
		if h == own {
			last = append(last, k)
		} else {
			first = append(first, k)
		}
	}
	return append(first, last...)
}
