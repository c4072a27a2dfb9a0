package verify

import (
	"cmp"
	"crypto/sha256"
	"time"
)

// Explanation says why a request does not verify. It holds no secret, no expected
// signature and no part of the body, so it may be shown to whoever may see that a
// request was refused.
type Explanation struct {
	// Error is what Verify says. Nil: the request verifies, and there are no causes.
	Error *Error
	// Causes hold all together, in the order in which they should be mended.
	Causes []Cause

	Scheme     string
	BodyLength int
	BodyHash   [32]byte
	// KeyID is what the request names, where that is short and printable, and KeyNote
	// what is known of it. Both are empty if the scheme names no key.
	KeyID, KeyNote string
	// MatchedKey is the id of the key under which the bytes match, once the causes
	// are mended. Empty if none does, or if it has no id.
	MatchedKey string
	// Timestamp is the text that arrived; Distance is what it says minus now.
	Timestamp string
	Distance  time.Duration
	// Tolerance is how far it may be from now. Zero: no limit.
	Tolerance time.Duration
	// DeliveryID is what the request says, where it stands outside the body.
	DeliveryID string
	// Signature is its shape, such as "64 hex characters".
	Signature string
	// Frame is the text that should be signed; the body, and all that is taken from
	// it, stand as tokens in braces.
	Frame string
	// MACs is how many attempts were made, Bytes what they cost: the bytes hashed, and
	// 64 KiB for each check of a public key.
	MACs  int
	Bytes int64
}

// Cause is one thing that is wrong.
type Cause struct {
	Code string `json:"code"` // stable
	Text string `json:"text"` // what was found, for people
	Fix  string `json:"fix"`  // what to do
}

// DefaultExplainBytes is the most that Explain hashes where Verifier.ExplainBytes
// is zero.
const DefaultExplainBytes = 256 << 20

// formShare is how much of the bytes that may be hashed one body may have, to be
// tried in other forms: 1 MiB of 256.
const formShare = 256

// maxFaults is how many departures from the scheme are looked for at once, beside
// those that are seen without any search.
const maxFaults = 4

// Explain says why Verify refuses r: every cause that it names is seen in the
// request, or proven by a signature that agrees once the cause is taken away. It
// tries the keys of v, whatever their span, and those of others, which are other
// sources of the same tenant: never give it another tenant's.
//
// What is tried is what goes wrong for senders: another key, another reading of its
// text, another hash, another framing of timestamp, id, URL and body, a body that
// was changed on the way, another spelling, another unit of time. The fewest
// departures win; at equal number keys in their order, then the order of that list.
// Equal input gives an equal answer. If nothing fits, the last cause is no_match, or
// search_cut if Verifier.ExplainBytes were hashed before all was tried.
//
// Public-key schemes have one reading of a key and one hash. Of token schemes only
// readings are tried, of schemes in code only keys and spellings of the URL.
//
// What Verify refuses for a reason that has no cause of its own, such as a
// precondition, is a cause with the name of the reason.
func (v *Verifier) Explain(r Request, others ...KeySet) Explanation {
	x := explainer{out: Explanation{Scheme: v.Scheme.Name(), BodyLength: len(r.Body), BodyHash: sha256.Sum256(r.Body)}}
	envelope, err := v.Verify(r)
	x.out.Error, _ = err.(*Error)
	if x.c.start(v, &r) == nil {
		x.most = cmp.Or(v.ExplainBytes, DefaultExplainBytes)
		x.collectKeys(others)
		x.explain(envelope)
	}
	x.finish()
	return x.out
}

// explainer is one request being explained.
type explainer struct {
	c     check // lenient: filled with what is there
	out   Explanation
	found []Cause
	most  int64 // bytes that may be hashed
	buf   []byte

	names      []string // of the request's headers, sorted
	unsure     bool     // something is not there, or twice: then no match proves nothing
	sigValues  []string // what stands in the signature's places
	signatures []sigReading
	times      []timeReading // the text that arrived comes first
	id         string
	urls       []string // the public URL, then its other spellings
	keys       []tryKey
	frames     []frame // the scheme's own comes first
	bodies     []bodyForm
	formsLeft  bool // the body was too long for other forms
	texts      [maxFaults + 1][]signedText
}

func (x *explainer) explain(e Envelope) {
	x.headers()
	x.preconditions()
	x.keyID()
	if x.c.p.code != nil {
		x.explainCode(e)
		return
	}
	x.readSignatures()
	x.readTimes()
	x.readID()
	x.urls = spellings(x.publicURL())
	x.readFrames()
	if x.out.Error == nil {
		return
	}
	if x.judgeTime(); len(x.sigValues) == 0 || len(x.signatures) == 0 {
		return
	}
	x.readBodies()
	x.readTexts()
	hit, cut := x.search()
	switch {
	case hit != nil:
		x.explainHit(hit)
	case cut:
		x.addSearchCut()
	case !x.unsure:
		x.addNoMatch()
	}
}

// finish puts the causes in order and takes away whatever a configured secret is
// part of: a sender may have put one where it does not belong.
func (x *explainer) finish() {
	if x.out.Error == nil {
		x.found = nil
	} else if len(x.found) == 0 {
		x.addReason()
	}
	x.out.Causes = inOrder(x.found)
	x.redact()
}
