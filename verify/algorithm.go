package verify

import (
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"hash"
)

type family uint8

const (
	familyNone family = iota
	familyHMAC
	familyHash // plain hash, the secret stands in the template
	familyToken
	familyBasic
	familyEd25519
	familyECDSA
	familyRSA
)

func (f family) shared() bool { return f >= familyHMAC && f <= familyBasic }

// hashes are the digests of the shared-secret algorithms; algorithm.hash is an
// index into them.
var hashes = [...]struct {
	new  func() hash.Hash
	size int
}{{sha1.New, sha1.Size}, {sha256.New, sha256.Size}, {sha512.New, sha512.Size}, {sha512.New384, sha512.Size384}}

type algorithm struct {
	family      family
	hash        int
	least, most int  // length of a signature in bytes
	sha1        bool // of a public-key algorithm
}

var algorithms = map[string]algorithm{
	"hmac-sha1":         {family: familyHMAC, hash: 0, least: 20, most: 20},
	"hmac-sha256":       {family: familyHMAC, hash: 1, least: 32, most: 32},
	"hmac-sha512":       {family: familyHMAC, hash: 2, least: 64, most: 64},
	"hash-sha1":         {family: familyHash, hash: 0, least: 20, most: 20},
	"hash-sha256":       {family: familyHash, hash: 1, least: 32, most: 32},
	"token":             {family: familyToken, hash: 1, least: 1, most: maxSecret},
	"basic":             {family: familyBasic, hash: 1, least: 1, most: 1024},
	"ed25519":           {family: familyEd25519, least: 64, most: 64},
	"ecdsa-p256-sha256": {family: familyECDSA, least: 8, most: 72},
	"rsa-pkcs1-sha256":  {family: familyRSA, least: leastRSABits / 8, most: 1024},
	"rsa-pkcs1-sha1":    {family: familyRSA, least: leastRSABits / 8, most: 1024, sha1: true},
}
