package verify

import (
	"bytes"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// hostileBodies fill the cap with what a parser finds hard.
func hostileBodies(name string) map[string][]byte {
	full := func(unit string) []byte { return bytes.Repeat([]byte(unit), DefaultMaxBody/len(unit)) }
	all := map[string][]byte{
		"opening brackets":         full("["),
		"opening braces":           full(`{"a":`),
		"closing brackets":         full("]"),
		"quotes":                   full(`"`),
		"backslashes":              append([]byte(`{"id":"`), full(`\`)[:DefaultMaxBody-7]...),
		"escapes":                  append([]byte(`{"id":"`), full(`\u0000`)[:DefaultMaxBody-8]...),
		"invalid UTF-8":            full("\xff"),
		"a number without an end":  full("9"),
		"a string without an end":  append([]byte(`{"id":"`), full("a")[:DefaultMaxBody-7]...),
		"commas":                   full(","),
		"equal names":              append([]byte(`{"id":"1"`), full(`,"id":"1"`)[:DefaultMaxBody-20]...),
		"NUL":                      full("\x00"),
		"blanks":                   full(" "),
		"form pairs":               full("a=b&"),
		"form of ampersands":       full("&"),
		"form of equals signs":     full("="),
		"form of percent signs":    full("%"),
		"form of plus signs":       full("+"),
		"dots":                     full("."),
		"line feeds":               full("\r\n"),
		"gzip that is none":        append([]byte("\x1f\x8b\x08\x00"), full("\x00")[:DefaultMaxBody-4]...),
		"one byte over the cap":    append(full("a"), make([]byte, 2)...),
		"nothing":                  nil,
		"null":                     []byte("null"),
		"an empty list":            []byte("[]"),
		"a list for every object":  []byte(`[[[[]]]]`),
		"an object for every text": []byte(`{"signature":{},"Signature":{},"id":{},"notificationItems":{}}`),
	}
	switch name {
	case "adyen":
		item := `{"NotificationRequestItem":{"additionalData":{"hmacSignature":"` + strings.Repeat("A", 43) + `="}}},`
		name := `"` + strings.Repeat(`\u0061`, 20) + `":1,`
		all["escaped names"] = []byte(`{` + strings.Repeat(name, 2000) + `"notificationItems":[` + strings.Repeat(item, maxAdyenItems-1) + `{}]}`)
		all["two thousand items"] = append(append([]byte(`{"notificationItems":[`), bytes.Repeat([]byte(item), 2000)...), "{}]}"...)
	case "aws-sns":
		all["ten thousand signatures"] = append(append([]byte(`{"Signature":"AA=="`), bytes.Repeat([]byte(`,"Signature":"AA=="`), 10000)...), '}')
	case "mailgun":
		all["ten thousand signatures"] = append(append([]byte(`{"signature":{"signature":"00"`), bytes.Repeat([]byte(`,"signature":"00"`), 10000)...), "}}"...)
	case "braintree":
		all["ten thousand signatures"] = append(bytes.Repeat([]byte("bt_signature=a|0&"), 10000), "bt_payload=a"...)
		all["ten thousand pairs in one field"] = append(append([]byte("bt_signature="), bytes.Repeat([]byte("a%7C0%26"), 10000)...), "&bt_payload=a"...)
	}
	return all
}

// A body that nobody signed is refused, whatever it is, and costs a small multiple of
// its length.
func TestHostileBodiesInEveryPreset(t *testing.T) {
	slowest, worst := time.Duration(0), ""
	for _, g := range firsts(goodRequests(t)) {
		p := g.v.Scheme.p
		bodies := hostileBodies(g.v.Scheme.Name())
		for _, defect := range slices.Sorted(maps.Keys(bodies)) {
			r := g.r
			r.Body = bodies[defect]
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			env, err := g.v.Verify(r)
			if took := time.Since(start); took > slowest {
				slowest, worst = took, g.name+" "+defect
			}
			runtime.ReadMemStats(&after)
			if cost := after.TotalAlloc - before.TotalAlloc; cost > 64*DefaultMaxBody {
				t.Errorf("%s, %s: %d bytes", g.name, defect, cost)
			}
			if err == nil && (p.bodySigned || p.signature.inBody()) && !bytes.Equal(r.Body, g.r.Body) {
				t.Errorf("%s, %s: verifies", g.name, defect)
			}
			if err == nil && len(r.Body) > DefaultMaxBody {
				t.Errorf("%s, %s: over the cap and verifies", g.name, defect)
			}
			if err == nil && (len(env.MetaError) > 300 || len(env.DeliveryID) > maxDeliveryID) {
				t.Errorf("%s, %s: got into the envelope", g.name, defect)
			}
			if err != nil && len(err.Error()) > 300 {
				t.Errorf("%s, %s: %d bytes of error", g.name, defect, len(err.Error()))
			}
		}
	}
	t.Logf("slowest: %s, %s", slowest, worst)
}

// The URL as received is a text like any other.
func TestHostileURLsInEveryPreset(t *testing.T) {
	for _, g := range firsts(goodRequests(t)) {
		query := ""
		if p := g.v.Scheme.p.signature.places[0]; p.kind == placeQuery {
			query = p.name + "=00&"
		}
		for _, url := range []string{
			"", "?", "/in?" + strings.Repeat("a=b&", 1<<16), "/in?" + strings.Repeat("%", 1<<18), "/in?" + strings.Repeat("%zz=", 1<<16),
			"/in?" + strings.Repeat(query, 10000), "/in?\xff\xfe=\x00", "/in?" + strings.Repeat(";", 1<<18), "//in/..?#?", "http://[::1", "*", strings.Repeat("?", 1<<18),
			"/in?bodySHA256=" + strings.Repeat("0", 1<<18), "/in?" + strings.Repeat("bodySHA256=&", 10000),
		} {
			r := g.r
			r.URL = url
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := g.v.Verify(r)
			runtime.ReadMemStats(&after)
			if cost := after.TotalAlloc - before.TotalAlloc; cost > 64<<20 {
				t.Errorf("%s, %.40q: %d bytes", g.name, url, cost)
			}
			if err == nil && g.v.Scheme.NeedsURL() && rawQuery(url) != "" && !strings.Contains(g.v.URL, "?") {
				t.Errorf("%s, %.40q: verifies", g.name, url)
			}
			if err != nil && len(err.Error()) > 300 {
				t.Errorf("%s, %.40q: %d bytes of error", g.name, url, len(err.Error()))
			}
		}
	}
}
