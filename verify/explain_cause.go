package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// causes are all codes in the order in which causes are listed, with what is said
// about those that a signature proves: once this is done the bytes match, so that
// is what happened, and this is what to do.
var causes = []struct{ code, once, means, fix string }{
	{code: "scheme_other"},
	{code: "header_missing"},
	{code: "header_duplicated"},
	{code: string(ReasonPrecondition)},
	{code: string(ReasonDeliveryIDInvalid)},
	{code: "key_unknown"},
	{code: "key_expired", fix: "let the sender use a later key, or move not_after"},
	{code: "key_not_yet_valid", fix: "let the sender use an earlier key until then, or move not_before"},
	{code: "key_other", fix: "let the sender name the key that it signs with"},
	{code: "key_other_source", fix: "call the URL of the source whose key this is, or give the key to this one"},
	{"key_trailing_newline", "the newline at the end of our secret is removed", "our secret ends with a newline, the sender's does not", "store the secret without a final newline (printf %s, not echo)"},
	{"key_sender_newline", "a newline is put behind the secret", "the sender's secret ends with a newline, ours does not", "remove the final newline from the secret at the sender (printf %s, not echo)"},
	{code: "key_hex"},
	{code: "key_base64"},
	{code: "key_prefix"},
	{code: "hash_sha1"},
	{code: "hash_sha256"},
	{code: "hash_sha512"},
	{"hash_plain", "secret and text are hashed without HMAC", "the sender hashed secret and text, which is no HMAC", "use HMAC at the sender"},
	{code: "frame_body_only"},
	{code: "frame_ts_body"},
	{code: "frame_id_ts_body"},
	{code: "frame_no_version"},
	{code: "frame_version"},
	{code: "frame_colon"},
	{code: "frame_comma"},
	{code: "frame_joined"},
	{code: "frame_body_first"},
	{code: "frame_url"},
	{code: "url_other"},
	{"body_extra_newline", "the final newline is removed", `the sender signed the body without the "\n" that arrived`, "sign exactly the bytes you send (curl: --data-binary @file, not --data)"},
	{"body_missing_newline", "a final newline is added", `the sender signed a final "\n" that did not arrive`, "send exactly the bytes you sign (curl: --data-binary @file, not --data)"},
	{"body_extra_blank", "blanks at the ends are removed", "blanks at the ends arrived that were not signed", fixBytes},
	{"body_crlf", "CRLF is made LF", "line ends became CRLF on the way", fixBytes},
	{"body_lf", "LF is made CRLF", "line ends became LF on the way", fixBytes},
	{code: "body_bom", fix: fixBytes},
	{"body_compacted", "the JSON is compacted", "spaced or indented JSON arrived, compact JSON was signed", fixBytes},
	{"body_python_spacing", "the JSON is spaced as Python does", `JSON was signed with ", " and ": " (Python's default), another spacing arrived`, `sign the bytes you send; in Python json.dumps(…, separators=(",", ":")) once, for both`},
	{"body_slash_unescaped", `"/" is written "\/"`, `"\/" was signed (PHP's default), "/" arrived: the JSON was parsed and written again`, fixReprint},
	{"body_ascii_escaped", `other letters are written "\uXXXX"`, `"\uXXXX" was signed, UTF-8 arrived: the JSON was parsed and written again`, fixReprint},
	{"body_ascii_unescaped", `"\uXXXX" is written in UTF-8`, `UTF-8 was signed, "\uXXXX" arrived: the JSON was parsed and written again`, fixReprint},
	{code: "body_html_escaped", fix: fixReprint},
	{"body_form_field", "the form field payload is taken", "a form arrived, the JSON in its field payload was signed", "post JSON (GitHub: content type application/json)"},
	{"body_base64", "the body is decoded from base64", "base64 arrived, the decoded bytes were signed (an API gateway does so)", "let the gateway pass bodies through as they are"},
	{"body_inflated", "the body is inflated", "a compressed body arrived, the plain one was signed", "sign what travels, or send it uncompressed"},
	{"body_empty", "the body is left out", "an empty body was signed", "sign the body that you send: it was read before, or not yet written"},
	{code: string(ReasonBodyTooLarge)},
	{code: string(ReasonBodyUnparsable)},
	{code: "sig_blank"},
	{code: "sig_prefix"},
	{code: "sig_no_prefix"},
	{code: "sig_label"},
	{code: "sig_uppercase"},
	{code: "sig_hex"},
	{code: "sig_base64"},
	{code: "sig_base64url"},
	{code: "sig_base64_of_hex"},
	{code: "sig_undecodable"},
	{code: "ts_millis"},
	{code: "ts_seconds"},
	{code: "ts_format"},
	{code: "ts_window"},
	{code: "no_match"},
	{code: "search_cut"},
}

const (
	fixBytes   = "sign exactly the bytes you send, and let nothing change them on the way"
	fixReprint = "sign the very bytes that are sent, and let nothing on the way parse and print them again"
)

// rank is a code's place in the order. Reasons that have none of their own stand
// before the end.
func rank(code string) int {
	end := 0
	for i := range causes {
		if causes[i].code == code {
			return i
		}
		if causes[i].code == "no_match" {
			end = i
		}
	}
	return end
}

func inOrder(found []Cause) []Cause {
	slices.SortStableFunc(found, func(a, b Cause) int { return rank(a.Code) - rank(b.Code) })
	return found
}

// add says a thing once: a field may be missed as the scheme's and as the timestamp.
func (x *explainer) add(code, fix, format string, a ...any) {
	c := Cause{Code: code, Text: fmt.Sprintf(format, a...), Fix: fix}
	if !slices.Contains(x.found, c) {
		x.found = append(x.found, c)
	}
}

// addKnown takes the fix from the table.
func (x *explainer) addKnown(code, text string) {
	x.found = append(x.found, Cause{code, text, causes[rank(code)].fix})
}

// has says whether a cause of that code was found already.
func (x *explainer) has(code string) bool {
	return slices.ContainsFunc(x.found, func(c Cause) bool { return c.Code == code })
}

// departure is a choice other than the scheme's: once it is made the bytes match, what
// that means, and what to do. What is empty stands in the table of causes.
type departure struct{ code, once, means, fix string }

// proven adds the departures under which the bytes match.
func (x *explainer) proven(list []departure, key string) {
	for _, d := range list {
		row := &causes[rank(d.code)]
		text := cmp.Or(d.means, row.means)
		if len(list) == 1 {
			text = "the bytes match" + key + " once " + cmp.Or(d.once, row.once) + ": " + text
		}
		x.add(d.code, cmp.Or(d.fix, row.fix), "%s", text)
	}
}

// addNoMatch says what was tried: of a token there is nothing but readings of keys.
func (x *explainer) addNoMatch() {
	text, fix := "no key, reading, framing or form of the body fits: another secret signed, or the content changed",
		"compare the body hash and the secret with the sender's"
	switch family := x.c.p.algo.family; {
	case x.c.p.code != nil:
		text = "no key and no spelling of the URL fits: another key signed, or the content changed"
		fix = "compare the body hash and the key with the sender's"
	case family == familyToken || family == familyBasic:
		text = "what was sent is the secret of no key, however that is read"
		fix = "give the sender the secret of the source, or the source the one that is sent"
	case !family.shared():
		text = "no key, framing or form of the body fits: another private key signed, or the content changed"
		fix = "compare the body hash and the public key with the sender's"
	}
	if x.formsLeft {
		text += " (other forms of so long a body were not tried)"
	}
	x.add("no_match", fix, "%s", text)
}

func (x *explainer) addSearchCut() {
	x.add("search_cut", "look for it with a shorter body or fewer keys; hooklatch explain hashes more than a server does",
		"the search ended after %d attempts over %d bytes, before all was tried", x.out.MACs, x.out.Bytes)
}

// addReason names what Verify said where nothing else was found.
func (x *explainer) addReason() {
	e := x.out.Error
	text := strings.ReplaceAll(string(e.Reason), "_", " ")
	if e.Field != "" {
		text += " (" + e.Field + ")"
	}
	fix, ok := reasonFix[e.Reason]
	if !ok {
		fix = "sign as the scheme says"
	}
	x.add(string(e.Reason), fix, "%s", text)
}

var reasonFix = map[Reason]string{
	ReasonHeaderMissing:      "send it, as the scheme says",
	ReasonHeaderDuplicated:   "send it once; a proxy on the way may add a second one",
	ReasonSignatureMissing:   "sign the request",
	ReasonAlgorithmRefused:   "sign with an algorithm that the scheme allows",
	ReasonClaimMismatch:      "sign claims that are those of this request",
	ReasonNotCovered:         "sign every component that the scheme demands",
	ReasonKeySourceRefused:   "name a key where the scheme says that keys are",
	ReasonKeyUnusable:        "give the source a key of the kind and length that the scheme demands",
	ReasonPrecondition:       "see what the scheme demands: hooklatch schemes NAME",
	ReasonSignatureMalformed: "spell the signature as the scheme says",
	ReasonBodyUnparsable:     "send the body as the scheme says",
	// All else that does not match has a cause.
	ReasonSignatureMismatch: "sign more than a bare token: the answer to a handshake would be signed like this one",
}

// shortest secret that is looked for: a shorter one would be found by chance.
const leastRedacted = 8

// redact takes secrets out of all text that came from the request.
func (x *explainer) redact() {
	clean := func(s *string) { *s = x.redacted(*s) }
	o := &x.out
	for _, s := range []*string{&o.KeyID, &o.KeyNote, &o.MatchedKey, &o.Timestamp, &o.DeliveryID, &o.Signature, &o.Frame} {
		clean(s)
	}
	for i := range o.Causes {
		clean(&o.Causes[i].Text)
	}
	if o.Error != nil {
		e := *o.Error
		for _, s := range []*string{&e.KeyID, &e.Field, &e.DeliveryID, &e.Timestamp} {
			clean(s)
		}
		o.Error = &e
	}
}

func (x *explainer) redacted(s string) string {
	for i := range x.keys {
		for _, r := range x.keys[i].readings {
			if len(r.secret) >= leastRedacted {
				s = strings.ReplaceAll(s, string(r.secret), redacted)
			}
		}
	}
	return s
}

const maxShown = 64

// shortened keeps what came from a header from filling a screen. A secret goes first:
// a part of it would not be known as one.
func (x *explainer) shortened(s string) string {
	if s = x.redacted(s); len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}
