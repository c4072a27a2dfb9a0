package nats

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/hooklatch/hooklatch/inbox"
)

const (
	longestPrefix = 128
	// longestSubject stays below the line at which a server gives the connection up,
	// and with it every other attempt.
	longestSubject = 3 << 10
)

// checkPrefix refuses what subjects cannot begin with.
func checkPrefix(prefix string) error {
	switch {
	case prefix == "":
		return errors.New("nats: Subject is demanded")
	case len(prefix) > longestPrefix:
		return fmt.Errorf("nats: Subject has %d bytes, more than %d", len(prefix), longestPrefix)
	case strings.HasPrefix(prefix, "$"), strings.HasPrefix(prefix, "_INBOX"):
		return fmt.Errorf("nats: Subject %q is one of NATS itself", prefix)
	}
	for token := range strings.SplitSeq(prefix, ".") {
		if token == "" || escape(token) != token {
			return fmt.Errorf("nats: Subject %q is not made of A-Z a-z 0-9 _ - and dots between them", prefix)
		}
	}
	return nil
}

// subject is where a message goes: PREFIX.SOURCE.TYPE.
func subject(prefix, source, eventType string) string {
	tokens := strings.Split(eventType, ".")
	for i, token := range tokens {
		if token == "" {
			tokens = []string{escape(eventType)} // a subject holds no empty token
			break
		}
		tokens[i] = escape(token)
	}
	if eventType == "" {
		tokens = []string{"_"}
	}
	return prefix + "." + escape(source) + "." + strings.Join(tokens, ".")
}

// escape writes every byte but A-Z a-z 0-9 _ and - as %XX, so that two names never
// make the same token.
func escape(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// messageID is by what the stream knows a message again. Ids of deliveries are unique
// by tenant and source only. The prefix is part of it, because a stream drops a known id
// under another subject too: of two destinations one would get nothing.
func messageID(prefix string, d inbox.Delivery) string {
	return strings.Join([]string{prefix, url.PathEscape(d.Tenant), url.PathEscape(d.Source), url.PathEscape(d.DeliveryID)}, "/")
}
