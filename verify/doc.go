// Package verify says whether these bytes were signed by a key we accept, now.
//
// It has no input or output, starts no goroutine, writes no log, and parses a body
// only where the signature or a part of the signed text lies inside it, where it may
// be a handshake that is not signed, or once the signature is known to be right.
//
//	scheme, _ := verify.Preset("zhisou-v1")
//	key, err := verify.NewKey("k1", secret, scheme.SecretSpec())
//	keys, err := verify.NewKeySet(key)
//	v := &verify.Verifier{Scheme: scheme, Keys: keys}
//	if err := v.Check(); err != nil { … }        // once, at start
//	envelope, err := v.Verify(verify.Request{Method: r.Method, URL: r.RequestURI, Header: r.Header, Body: body})
//
// # Which call when
//
//	Check          once, at start: what could never verify
//	CheckHeader    before the body is read: is it worth reading?
//	MayHandshake   beside it: may it be a handshake, which CheckHeader knows nothing of?
//	Verify         with the body: is this a delivery, rightly signed?
//	Receive        the same, where the sender may ask before it sends
//	Handshake      that alone, for requests by another method than POST
//	Applies        which of two schemes, while a sender goes over to another
//	Explain        after a refusal, and behind the answer: why?
//	Sign           what Verify takes, as headers; SignRequest where they do not hold it
//
// Verify alone is enough for a server that reads bodies anyway and has no handshakes.
//
// # Schemes are data
//
// A [Recipe] says where the signature stands, how it is spelled, which text is
// signed, and where timestamp, delivery id, key id and event type stand. [Preset]
// returns built-in ones; [ParseRecipe] reads others, or a preset with fields
// replaced; [Recipe.Compile] refuses nonsense before the first request. Sign and
// Verify read the same recipe, so what one makes the other takes. The page
// docs/recipes.md goes from a sender's documentation to a recipe.
//
// What a recipe cannot say has code, chosen by the algo code:NAME: a canonical
// request, a JWT, parts of a body. Key id, delivery id, event type and answer are
// the recipe's there too. No key is ever fetched: a certificate's URL or a kid in a
// request only selects among the keys that are pinned.
//
// # Order of checks
//
//  1. Each header that the recipe names is there once, also in its spelling with
//     underscores. A request without any signature is told so first: it is
//     unsigned, not malformed.
//  2. Preconditions (Recipe.Require).
//  3. The delivery id.
//  4. The signature: spelling, and length after decoding.
//  5. The timestamp: grammar, then window.
//  6. The body is within the cap.
//  7. The key is looked up and the signature checked over the raw bytes.
//  8. What the signature covers and nobody needed before: a timestamp in the body,
//     the delivery id in the body, the event type.
//
// [Verifier.CheckHeader] does 1 to 5, so that a server can refuse before it reads
// a body; [Verifier.Verify] does all. Values in a body are read at step 8, except
// those that the signature itself needs.
//
// # Strictness
//
// Header names are compared without case, over any map. A single-valued header
// that is there twice is refused, equal values too; only a comma list may stand on
// several lines. An empty value is an absent one. Hex is lower case, base64 is
// padded, canonical and without line breaks, unless the recipe says otherwise. A
// signature header has at most 32 candidates (public-key algorithms: 4) and 8 KiB.
// The timestamp is signed as received and parsed from a copy; no library function
// sees it before its grammar was checked. Windows look both ways. A delivery id is
// 1 to 256 characters of ! to ~, narrower by the recipe's pattern.
//
// A delivery id in a body that cannot be read although the signature holds becomes
// "body:" and the body's SHA-256, with Envelope.MetaError set: what was rightly
// signed is not turned away. The same goes for an event type, which is left out.
//
// # Keys
//
// A [Key] is accepted from NotBefore, included, to NotAfter, excluded, by our clock
// at receipt; there is no hidden overlap. With a key id in the request, that key
// alone is tried. Without one, every active key is, newest first, at most four;
// if none fits, keys outside their span are tried too, to tell an expired key from
// a wrong one. All keys are compared with all candidates in constant time and
// without early exit, and a request with an unknown key id is hashed as any other,
// so that time says nothing.
//
// The reading of a secret is fixed by its [SecretSpec] and never guessed from a
// prefix. [NewKey] refuses what could never verify, or would differ from what the
// sender has: blanks at either end, wrong padding, too few bytes. [Secret] prints as
// [redacted] everywhere.
//
// # Handshakes
//
// Some senders ask before they send: a challenge to be echoed, a ping, a secret
// handed over. A recipe lists these requests and their answers, each of a kind that
// bounds it. Where the sender signs them they are verified first. What is
// echoed is short and holds nothing that HTML reacts to. An answer under the signing
// key is a MAC over at most 128 letters, digits, _, = and -, and no delivery is taken
// whose signed text is that: nobody can have a webhook signed here. Bound how often
// these are given all the same, as package proxy does.
//
// # Errors
//
// Every refusal is an [*Error]. Its [Reason] is precise and for logs; [Reason.Code]
// is what a sender may be told, one code for all failures of keys and signatures.
// Callers branch with errors.Is on [ErrMalformed], [ErrWindow] and [ErrSignature].
// An error never holds a secret, a signature or a part of the body.
//
// # Why it does not match
//
// [Verifier.Explain] says why a request is refused. It tries what goes wrong for
// senders, in rising number, until a signature agrees: what it names is proven, and
// where nothing fits it says so. Its result holds no secret, no expected signature
// and no part of the body; its cost is bounded by Verifier.ExplainBytes. A server
// runs it behind its answer, never in front of it. The codes of causes are stable;
// new ones may be added.
//
// # Speed
//
// Verify of zhisou-v1 with two keys costs about what the hash does; the states of keys
// are kept. On two shared cores (AMD EPYC, Go 1.26.8), the quickest of many turns beside
// hmac.New, Write, Write and Sum over the same bytes, the same in three runs:
//
//	body      Verify     bare HMAC   ratio
//	1.5 KiB   1,551 ns   1,266 ns    1.23    0 against 6 allocations
//	256 KiB   143.9 µs   143.5 µs    1.00
//
// Stripe with 4 keys and 32 candidates takes 16 µs and 4 allocations for 1.5 KiB. An
// unknown and an expired key take within 2 % of what a wrong signature does.
//
//	go test ./verify -run '^$' -bench 'Ratio|Refusals|Verify/stripe' -benchtime 2s
//
// # What is not promised
//
// A valid signature says who sent the bytes, not that they are new: a replay inside
// the window verifies again, and a scheme without a timestamp verifies forever.
// [Scheme.Weaknesses] names what a scheme leaves open, [Scheme.Covers] what it signs;
// [Scheme.IDSigned] and [Scheme.BodySigned] say the same in short; where the
// delivery id is not signed, a captured request verifies under another id. The
// caller keeps delivery ids and refuses repetitions.
//
// Two rightly signed bodies under one delivery id may still be one event, where a
// sender counts its attempts in them: [Ignored] gives both one hash.
//
// The zero [Verifier], [Scheme] and [KeySet] refuse everything. There is no setting
// that switches verification off.
//
// # Compatibility
//
// A recipe that is read today is read by later versions and means the same, in JSON,
// YAML and Go. Names of presets, reasons, codes, causes and weaknesses stay. New ones
// may be added, new fields of structs too: name the fields you set. The recipe behind
// a preset changes where its sender changes how it signs, or where it was wrong; the
// changelog says so. Who must not follow keeps the recipe: [Scheme.Recipe] is all of it.
// Texts of errors and explanations are for people and may change.
package verify
