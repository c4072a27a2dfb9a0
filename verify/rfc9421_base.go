package verify

import (
	"net/http"
	"net/url"
	"strings"
)

// The signature base of RFC 9421, section 2: one line for each covered component and
// a last one for the signature's own parameters. Whatever stands in the URL comes from
// the public URL. Of the parameters of components only the name of @query-param is
// known; one with another is refused.

// derivedComponents are those that have no parameters, and what of the request they
// are made of.
var derivedComponents = map[string]partKind{
	"@method": partMethod, "@target-uri": partURL, "@scheme": partURL, "@query": partURL,
	"@authority": partHost, "@path": partPath, "@request-target": partPathQuery,
}

// coveredField is a header as a signature covers it: its lines in order, joined.
func coveredField(h http.Header, name string) (string, Reason) {
	var lines []string
	twin := false
	for k, l := range h {
		if len(l) == 0 {
			continue
		}
		switch spelled(k, name) {
		case spelledRight:
			if lines != nil { // two keys of the map have no order
				return "", ReasonHeaderDuplicated
			}
			lines = l
		case spelledTwin:
			twin = true
		}
	}
	if twin && lines != nil {
		return "", ReasonHeaderDuplicated
	}
	trimmed := make([]string, len(lines))
	for i, l := range lines {
		trimmed[i] = strings.Trim(l, " \t")
	}
	value := strings.Join(trimmed, ", ")
	if value == "" {
		return "", ReasonHeaderMissing
	}
	// A line break would write lines of the base.
	if strings.ContainsFunc(value, func(r rune) bool { return (r < ' ' || r > '~') && r != '\t' }) {
		return "", ReasonSignatureMalformed
	}
	return value, ""
}

// signatureBase is the signed text.
func (c *check) signatureBase(m *sfMember) (string, *Error) {
	var b strings.Builder
	var names []string
	for i := range m.inner {
		item := &m.inner[i]
		start := b.Len()
		item.write(&b)
		name := b.String()[start:]
		if index(names, name) >= 0 {
			return "", c.fail(ReasonSignatureMalformed, signatureInput)
		}
		names = append(names, name)
		value, fault := c.component(item)
		if fault != "" {
			return "", c.fail(fault, item.text)
		}
		b.WriteString(": " + value + "\n")
	}
	b.WriteString(`"@signature-params": `)
	m.writeInnerList(&b)
	return b.String(), nil
}

// component is the value of a covered component.
func (c *check) component(item *sfItem) (string, Reason) {
	if item.kind != sfString {
		return "", ReasonSignatureMalformed
	}
	if item.text == "@query-param" {
		return c.queryParam(item)
	}
	if len(item.params) > 0 {
		return "", ReasonSignatureMalformed
	}
	if !strings.HasPrefix(item.text, "@") {
		if !validHeaderName(item.text) || strings.ToLower(item.text) != item.text {
			return "", ReasonSignatureMalformed
		}
		return coveredField(c.r.Header, item.text)
	}
	if item.text == "@method" {
		if c.r.Method == "" {
			return "", ReasonHeaderMissing
		}
		return c.r.Method, ""
	}
	kind, ok := derivedComponents[item.text]
	if !ok {
		return "", ReasonSignatureMalformed
	}
	value, err := c.urlToken(kind)
	if err != nil {
		return "", err.Reason
	}
	scheme, _, _ := strings.Cut(c.v.URL, "://")
	scheme = strings.ToLower(scheme)
	switch item.text {
	case "@scheme":
		return scheme, ""
	case "@query":
		return "?" + rawQuery(value), ""
	case "@authority":
		value = strings.TrimSuffix(strings.ToLower(value), map[string]string{"https": ":443", "http": ":80"}[scheme])
	}
	return value, ""
}

// queryParam is one field of the query, decoded and encoded again in one spelling.
func (c *check) queryParam(item *sfItem) (string, Reason) {
	name, ok := item.param("name")
	if !ok || len(item.params) != 1 || name.kind != sfString {
		return "", ReasonSignatureMalformed
	}
	full, err := c.urlToken(partURL)
	if err != nil {
		return "", err.Reason
	}
	decoded, broken := url.PathUnescape(name.text)
	if broken != nil || percentEncoded(decoded) != name.text {
		return "", ReasonSignatureMalformed
	}
	value, found, broken := soleFormValue(rawQuery(full), decoded)
	switch {
	case broken == errFieldTwice:
		return "", ReasonHeaderDuplicated
	case broken != nil:
		return "", ReasonSignatureMalformed
	case !found:
		return "", ReasonHeaderMissing
	}
	return percentEncoded(value), ""
}

// percentEncoded escapes all but letters, digits and *-._ as URLs in forms do.
func percentEncoded(s string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("*-._", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteString("%" + hexDigits[c>>4:c>>4+1] + hexDigits[c&15:c&15+1])
	}
	return b.String()
}
