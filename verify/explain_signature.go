package verify

import (
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// sigReading is what the text of a signature may stand for, and what is wrong with
// its spelling.
type sigReading struct {
	sum    []byte
	faults []Cause
}

// readSignatures finds everything that could be a signature, and the fields beside it.
func (x *explainer) readSignatures() {
	spec := &x.c.p.signature
	for i := range spec.places {
		p := &spec.places[i]
		if p.kind == placeHeader {
			for _, line := range x.c.lines[p.slot] {
				if line != "" {
					x.sigValues = append(x.sigValues, line)
				}
			}
			continue
		}
		if text, err := x.c.demand(p); err == nil {
			x.sigValues = append(x.sigValues, text)
		} else if err.Reason == ReasonBodyUnparsable {
			x.unsure = true
			x.add(string(ReasonBodyUnparsable), "send the body as the scheme says", "the signature lies in the body, which does not parse")
		} else {
			x.missing(p.String())
		}
	}
	size := 0
	for _, value := range x.sigValues {
		if size += len(value); size <= maxSignature {
			x.readValue(value)
		}
	}
	for i, name := range x.c.p.fields {
		if len(x.sigValues) > 0 && x.c.fields[i] == "" {
			x.missing("sig:" + name)
		}
	}
	if len(x.sigValues) > 0 && len(x.signatures) == 0 {
		x.add("sig_undecodable", x.spelling(), "the signature (%s) cannot be read: it is cut, or none at all", x.out.Signature)
	}
	slices.SortStableFunc(x.signatures, func(a, b sigReading) int { return len(a.faults) - len(b.faults) })
}

// spelling says how the signature has to be written, and where.
func (x *explainer) spelling() string {
	spec := &x.c.p.signature
	before, size := spec.prefix, 0
	if spec.kvSep != 0 {
		before = spec.tags[0] + string(spec.kvSep) + before
	}
	if before != "" {
		before = strconv.Quote(before) + " and "
	}
	if spec.least == spec.most {
		size = spec.least
	}
	form := "the secret itself"
	switch family := x.c.p.algo.family; {
	case family == familyBasic:
		form = "base64 of user:password"
	case spec.encoding == encHex:
		form = counted(hex.EncodedLen(size), "lower-case hex")
	case spec.encoding == encHexAny:
		form = counted(hex.EncodedLen(size), "hex")
	case spec.encoding == encBase64:
		form = counted(base64.StdEncoding.EncodedLen(size), "padded base64")
	case spec.encoding == encBase64URL:
		form = counted(base64.RawURLEncoding.EncodedLen(size), "unpadded URL-safe base64")
	}
	return "send " + before + form + " in " + x.where(spec.places[0].String())
}

// counted says how many characters there are of a kind, where that is known.
func counted(n int, kind string) string {
	if n == 0 {
		return kind
	}
	return strconv.Itoa(n) + " characters of " + kind
}

// readValue splits one value into its items.
func (x *explainer) readValue(value string) {
	spec := &x.c.p.signature
	before := len(x.signatures)
	if spec.listSep == 0 {
		x.readItem(value)
	} else {
		for item := range strings.SplitSeq(value, string(spec.listSep)) {
			x.readItem(item)
		}
	}
	if len(x.signatures) > before || x.c.p.algo.family == familyToken || x.c.p.algo.family == familyBasic {
		return
	}
	// Another list than the scheme's, or a list where it has none.
	for item := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ',' || r == ';' || r == ' ' }) {
		x.readItem(item)
	}
}

func (x *explainer) readItem(item string) {
	if len(x.signatures) >= maxCandidates || item == "" {
		return
	}
	spec := &x.c.p.signature
	var faults []Cause
	fault := func(code, format string, a ...any) {
		faults = append(faults, Cause{code, fmt.Sprintf(format, a...), x.spelling()})
	}
	text := strings.TrimSpace(item)
	if text != item && !spec.trim {
		fault("sig_blank", "blanks stand around the signature")
	}
	if spec.kvSep != 0 {
		tag, value, ok := strings.Cut(text, string(spec.kvSep))
		switch ok = ok && plainTag(tag) && value != ""; {
		case !ok:
			fault("sig_no_prefix", "the signature stands without its tag %s%c", spec.tags[0], spec.kvSep)
		case index(x.c.p.fields, tag) >= 0:
			x.readField(index(x.c.p.fields, tag), value)
			return
		case index(spec.tags, tag) < 0:
			fault("sig_label", "the signature stands under the tag %s, not under %s", tag, spec.tags[0])
		}
		if ok {
			text = value
		}
	}
	if x.out.Signature == "" {
		x.out.Signature = x.shape(text)
	}
	rest, ok := spec.cut(text)
	if ok && x.readDigest(rest, faults) {
		return
	}
	if cut, prefix := foreignPrefix(text); prefix != "" {
		rest, text = cut, cut
		fault("sig_prefix", "the signature carries the prefix %s", prefix)
	} else if spec.prefix != "" {
		fault("sig_no_prefix", "the signature stands without its prefix %s", spec.prefix)
		rest = text
	}
	x.readDigest(rest, faults)
}

func (x *explainer) readField(i int, value string) {
	if x.c.fields[i] != "" && !x.has("header_duplicated") {
		x.duplicated("sig:" + x.c.p.fields[i])
		return
	}
	x.c.fields[i] = value
}

// foreignPrefix cuts up to seven letters and a separator, as in sha256= or v0=.
func foreignPrefix(s string) (rest, prefix string) {
	i := strings.IndexAny(s, "=:, ")
	if i < 1 || i > 7 || i+1 == len(s) || !plainTag(s[:i]) {
		return s, ""
	}
	return strings.TrimSpace(s[i+1:]), s[:i+1]
}

// readDigest adds what text decodes to, and says whether there is anything.
func (x *explainer) readDigest(text string, faults []Cause) bool {
	spec := &x.c.p.signature
	before := len(x.signatures)
	add := func(sum []byte, code, means string) {
		list := slices.Clip(faults)
		if code != "" {
			list = append(list, Cause{code, means, x.spelling()})
		}
		x.signatures = append(x.signatures, sigReading{sum, list})
	}
	switch x.c.p.algo.family {
	case familyToken:
		add([]byte(text), "", "")
		return text != ""
	case familyBasic:
		if sum := decodeBase64(nil, text, false); sum != nil {
			add(sum, "", "")
		}
		return len(x.signatures) > before
	}
	if s := strings.NewReplacer("\r", "", "\n", "").Replace(text); s != text {
		text = s
		faults = append(slices.Clip(faults), Cause{"sig_blank", "line breaks stand inside the signature", x.spelling()})
	}
	if sum, err := hex.DecodeString(text); err == nil && x.digestSize(len(sum)) {
		switch lower := strings.ToLower(text) == text; {
		case spec.encoding == encHexAny || spec.encoding == encHex && lower:
			add(sum, "", "")
		case spec.encoding == encHex:
			add(sum, "sig_uppercase", "the signature is in upper-case hex")
		default:
			add(sum, "sig_hex", "the signature is in hex, the scheme's is in base64")
		}
	}
	plain := strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(text), "=")
	sum, err := base64.RawStdEncoding.DecodeString(plain)
	if err != nil {
		return len(x.signatures) > before
	}
	if x.digestSize(len(sum)) {
		standard := decodeBase64(nil, text, false) != nil
		means := "the signature is in base64, the scheme's is in hex"
		if spec.encoding == encBase64URL {
			means = "the signature is in standard base64, the scheme's is URL-safe and unpadded"
		}
		switch url := decodeBase64(nil, text, true) != nil; {
		case spec.encoding == encBase64 && standard || spec.encoding == encBase64URL && url:
			add(sum, "", "")
		case standard:
			add(sum, "sig_base64", means)
		default:
			add(sum, "sig_base64url", "the signature is in base64 that is URL-safe, unpadded or not canonical")
		}
	}
	if inner, err := hex.DecodeString(string(sum)); err == nil && x.digestSize(len(inner)) {
		add(inner, "sig_base64_of_hex", "the hex text of the signature was encoded in base64 once more")
	}
	return len(x.signatures) > before
}

// digestSize says whether a signature can have that many bytes: another hash than
// the scheme's has another length.
func (x *explainer) digestSize(n int) bool {
	if x.c.p.algo.family == familyHMAC || x.c.p.algo.family == familyHash {
		return n == sha1.Size || n == sha256.Size || n == sha512.Size
	}
	return n >= x.c.p.signature.least && n <= x.c.p.signature.most
}

// shape describes a signature without showing any of it.
func (x *explainer) shape(s string) string {
	kind := "characters"
	if f := x.c.p.algo.family; f == familyToken || f == familyBasic {
		return fmt.Sprintf("%d %s", len(s), kind)
	}
	if rest, prefix := foreignPrefix(s); prefix != "" {
		return prefix + " and " + x.shape(rest)
	}
	switch {
	case strings.Trim(s, "0123456789abcdefABCDEF") == "":
		kind = "hex characters"
	case strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=") == "":
		kind = "base64 characters"
	}
	return fmt.Sprintf("%d %s", len(s), kind)
}
