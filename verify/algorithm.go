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

// Indexes into hashes.
const (
	hashSHA1 = iota
	hashSHA256
	hashSHA512
	hashSHA384
)

// hashes are those of the shared-secret algorithms.
var hashes = [...]struct {
	new  func() hash.Hash
	size int
}{
	hashSHA1: {sha1.New, sha1.Size}, hashSHA256: {sha256.New, sha256.Size},
	hashSHA512: {sha512.New, sha512.Size}, hashSHA384: {sha512.New384, sha512.Size384},
}

type algorithm struct {
	family      family
	hash        int  // index into hashes
	least, most int  // length of a signature in bytes
	sha1        bool // of a public-key algorithm
}

var algorithms = map[string]algorithm{
	"hmac-sha1":         {family: familyHMAC, hash: hashSHA1, least: 20, most: 20},
	"hmac-sha256":       {family: familyHMAC, hash: hashSHA256, least: 32, most: 32},
	"hmac-sha512":       {family: familyHMAC, hash: hashSHA512, least: 64, most: 64},
	"hash-sha1":         {family: familyHash, hash: hashSHA1, least: 20, most: 20},
	"hash-sha256":       {family: familyHash, hash: hashSHA256, least: 32, most: 32},
	"token":             {family: familyToken, hash: hashSHA256, least: 1, most: maxSecret},
	"basic":             {family: familyBasic, hash: hashSHA256, least: 1, most: 1024},
	"ed25519":           {family: familyEd25519, least: 64, most: 64},
	"ecdsa-p256-sha256": {family: familyECDSA, least: 8, most: 72},
	"rsa-pkcs1-sha256":  {family: familyRSA, least: leastRSABits / 8, most: 1024},
	"rsa-pkcs1-sha1":    {family: familyRSA, least: leastRSABits / 8, most: 1024, sha1: true},
}
