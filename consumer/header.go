package consumer

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// longestValue bounds the headers made from metadata: an app that refuses
// headers of that size would refuse the delivery for ever.
const longestValue = 1 << 10

// Header is what a destination gets beside the body: the provider's own headers
// without those that belong to a connection or are reserved, then ours. Accept-Encoding
// is left out too: it says what the sender could read of an answer, not what we can.
func Header(f inbox.Forward) http.Header {
	h := carried(f.Delivery.Header)
	d := f.Delivery
	set := func(name, value string) {
		if value != "" && len(value) <= longestValue && validValue(value) {
			h[name] = []string{value}
		}
	}
	set("Hooklatch-Delivery-Id", d.DeliveryID)
	set("Hooklatch-Event-Id", d.EventID)
	set("Hooklatch-Event-Type", d.EventType)
	set("Hooklatch-Source", d.Source)
	set("Hooklatch-Tenant", d.Tenant)
	set("Hooklatch-Attempt", strconv.Itoa(f.Attempt))
	if !d.ReceivedAt.IsZero() {
		set("Hooklatch-Received-At", d.ReceivedAt.UTC().Format(time.RFC3339Nano))
	}
	set("Hooklatch-Origin", "push")
	set("Hooklatch-Key-Id", d.KeyID)
	if d.Revision != nil {
		set("Hooklatch-Revision", strconv.FormatInt(*d.Revision, 10))
	}
	return h
}

// carried copies what may go on. Names are compared in lower case and with every byte
// but letters and digits as "-", because many apps cannot tell these apart: a forged
// X_Real_IP or X.Real.IP would be X-Real-IP to them.
func carried(received map[string][]string) http.Header {
	nominated := connectionNamed(received)
	spellings := make(map[string]int, len(received))
	for name := range received {
		spellings[fold(name)]++
	}
	h := make(http.Header, len(received)+12)
	for _, name := range slices.Sorted(maps.Keys(received)) {
		folded := fold(name)
		switch {
		case reserved(folded), nominated[folded], !validName(name):
			continue
		case spellings[folded] > 1 && folded != strings.ToLower(name):
			continue // an app might read this one in place of the other
		}
		canonical := http.CanonicalHeaderKey(name)
		for _, v := range received[name] {
			if validValue(v) {
				h[canonical] = append(h[canonical], v)
			}
		}
	}
	return h
}

func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
}

// reserved: headers of one connection, of framing, of the answer to the sender, of who
// came which way, ours.
func reserved(folded string) bool {
	switch folded {
	case "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization",
		"te", "trailer", "trailers", "transfer-encoding", "upgrade", "http2-settings",
		"host", "content-length", "expect", "accept-encoding",
		"forwarded", "via", "x-real-ip":
		return true
	}
	return strings.HasPrefix(folded, "x-forwarded-") || strings.HasPrefix(folded, "hooklatch-")
}

// connectionNamed is what the sender's Connection header gives to its own hop.
func connectionNamed(received map[string][]string) map[string]bool {
	named := map[string]bool{}
	for name, values := range received {
		if fold(name) != "connection" {
			continue
		}
		for _, v := range values {
			for token := range strings.SplitSeq(v, ",") {
				named[fold(strings.TrimSpace(token))] = true
			}
		}
	}
	return named
}

// validName and validValue are what net/http will write. One field that it
// refuses would fail the whole request, each time.
func validName(name string) bool {
	for _, c := range []byte(name) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return name != ""
}

func validValue(v string) bool {
	for _, c := range []byte(v) {
		if (c < ' ' && c != '\t') || c == 0x7f {
			return false
		}
	}
	return true
}
