package verify

import (
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
	{code: "key_hex", fix: "agree on one reading: set the key's encoding, or decode the secret at the sender"},
	{code: "key_base64", fix: "agree on one reading: set the key's encoding, or decode the secret at the sender"},
	{"key_prefix", "the prefix of the secret is cut and the rest taken as text", "the sender cut the prefix of the secret and used the rest as text", "use the secret at the sender as the scheme says"},
	{"hash_sha1", "SHA-1 is used", "the sender signed with SHA-1", "choose the scheme's hash at the sender"},
	{"hash_sha256", "SHA-256 is used", "the sender signed with SHA-256", "choose the scheme's hash at the sender"},
	{"hash_sha512", "SHA-512 is used", "the sender signed with SHA-512", "choose the scheme's hash at the sender"},
	{"hash_plain", "secret and text are hashed without HMAC", "the sender hashed secret and text, which is no HMAC", "use HMAC at the sender"},
	{code: "frame_body_only", fix: fixFrame},
	{code: "frame_ts_body", fix: fixFrame},
	{code: "frame_id_ts_body", fix: fixFrame},
	{code: "frame_no_version", fix: fixFrame},
	{code: "frame_version", fix: fixFrame},
	{code: "frame_colon", fix: fixFrame},
	{code: "frame_comma", fix: fixFrame},
	{code: "frame_joined", fix: fixFrame},
	{code: "frame_body_first", fix: fixFrame},
	{code: "frame_url", fix: fixFrame},
	{code: "url_other", fix: "set the public URL of the source to what the sender calls"},
	{"body_extra_newline", "the final newline is removed", `the sender signed the body without the "\n" that arrived`, "sign exactly the bytes you send (curl: --data-binary @file, not --data)"},
	{"body_missing_newline", "a final newline is added", `the sender signed a final "\n" that did not arrive`, "send exactly the bytes you sign (curl: --data-binary @file, not --data)"},
	{"body_extra_blank", "blanks at the ends are removed", "blanks at the ends arrived that were not signed", fixBytes},
	{"body_crlf", "CRLF is made LF", "line ends became CRLF on the way", fixBytes},
	{"body_lf", "LF is made CRLF", "line ends became LF on the way", fixBytes},
	{code: "body_bom", fix: fixBytes},
	{"body_compacted", "the JSON is compacted", "indented JSON arrived, compact JSON was signed", fixBytes},
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
	fixFrame   = "sign the text that the scheme says"
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

func (x *explainer) add(code, fix, format string, a ...any) {
	x.found = append(x.found, Cause{Code: code, Text: fmt.Sprintf(format, a...), Fix: fix})
}

// addKnown takes the fix from the table.
func (x *explainer) addKnown(code, text string) {
	x.found = append(x.found, Cause{code, text, causes[rank(code)].fix})
}

// has says whether a cause of that code was found already.
func (x *explainer) has(code string) bool {
	return slices.ContainsFunc(x.found, func(c Cause) bool { return c.Code == code })
}

// departure is a choice other than the scheme's. Where once and means are empty,
// the table of causes has them.
type departure struct{ code, once, means string }

// proven adds the departures under which the bytes match.
func (x *explainer) proven(list []departure, key string) {
	for _, d := range list {
		if d.once == "" {
			row := &causes[rank(d.code)]
			d.once, d.means = row.once, row.means
		}
		text := d.means
		if len(list) == 1 {
			text = "the bytes match" + key + " once " + d.once + ": " + text
		}
		x.addKnown(d.code, text)
	}
}

func (x *explainer) addNoMatch() {
	text := "no key, reading, framing or form of the body fits: another secret signed, or the content changed"
	if x.formsLeft {
		text += " (other forms of so long a body were not tried)"
	}
	x.add("no_match", "compare the body hash and the secret with the sender's", "%s", text)
}

func (x *explainer) addSearchCut() {
	x.add("search_cut", "run hooklatch explain on the captured request: the command line may hash more",
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
	ReasonSignatureMalformed: fixSpelling,
}

// shortest secret that is looked for: a shorter one would be found by chance.
const leastRedacted = 8

// redact takes secrets out of all text that came from the request.
func (x *explainer) redact() {
	clean := func(s *string) {
		for i := range x.keys {
			for _, r := range x.keys[i].readings {
				if len(r.secret) >= leastRedacted {
					*s = strings.ReplaceAll(*s, string(r.secret), redacted)
				}
			}
		}
	}
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
