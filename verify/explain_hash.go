package verify

import (
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
)

// digestKind is how a secret and a text are made into a signature.
type digestKind struct {
	hash  int
	plain bool // the secret is hashed before the text
	list  []departure
}

// hashCodes are the hashes that a length is taken for. SHA-384 is not among them: 64
// hex characters are 48 bytes in base64.
var hashCodes = []struct {
	code string
	size int
}{{"hash_sha1", sha1.Size}, {"hash_sha256", sha256.Size}, {"hash_sha512", sha512.Size}}

// digestKinds follow from the lengths that arrived, the scheme's own last.
func (x *explainer) digestKinds() []digestKind {
	family, own := x.c.p.algo.family, x.c.p.algo.hash
	if family != familyHMAC && family != familyHash {
		return []digestKind{{}}
	}
	var first, last []digestKind
	for _, known := range hashCodes {
		h, there := hashBySize(known.size), false
		for i := range x.signatures {
			there = there || len(x.signatures[i].sum) == known.size
		}
		if !there {
			continue
		}
		var list []departure
		if h != own {
			list = []departure{{code: known.code}}
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

func hashBySize(n int) int {
	for i := range hashes {
		if hashes[i].size == n {
			return i
		}
	}
	return -1
}
