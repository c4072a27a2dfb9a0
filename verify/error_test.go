package verify

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

// What a sender is told gives away nothing about keys, and a status fits its code.
func TestCodeAndStatusOfEachReason(t *testing.T) {
	type answer struct {
		code   string
		status int
	}
	want := map[Reason]answer{
		ReasonHeaderMissing:        {"header_missing", 400},
		ReasonHeaderDuplicated:     {"header_duplicated", 400},
		ReasonDeliveryIDInvalid:    {"delivery_id_invalid", 400},
		ReasonTimestampMalformed:   {"timestamp_malformed", 400},
		ReasonTimestampOutOfWindow: {"timestamp_out_of_window", 401},
		ReasonSignatureMissing:     {"signature_invalid", 401},
		ReasonSignatureMalformed:   {"signature_invalid", 401},
		ReasonPrecondition:         {"signature_invalid", 401},
		ReasonKeyUnknown:           {"signature_invalid", 401},
		ReasonKeyExpired:           {"signature_invalid", 401},
		ReasonKeyNotYetValid:       {"signature_invalid", 401},
		ReasonSignatureMismatch:    {"signature_invalid", 401},
		ReasonAlgorithmRefused:     {"signature_invalid", 401},
		ReasonClaimMismatch:        {"signature_invalid", 401},
		ReasonNotCovered:           {"signature_invalid", 401},
		ReasonKeySourceRefused:     {"signature_invalid", 401},
		ReasonBodyUnparsable:       {"signature_invalid", 401},
		ReasonBodyTooLarge:         {"body_too_large", 413},
		ReasonHandshakeRefused:     {"handshake_refused", 403},
		ReasonKeyUnusable:          {"signature_invalid", 401},
		"":                         {"signature_invalid", 401},
		"a reason to come":         {"signature_invalid", 401},
	}
	for _, r := range append(Reasons(), "", "a reason to come") {
		if got := (answer{r.Code(), r.Status()}); got != want[r] {
			t.Errorf("%q: %v, want %v", r, got, want[r])
		}
	}
	if len(want) != len(Reasons())+2 {
		t.Errorf("%d reasons in the table, %d in the list", len(want)-2, len(Reasons()))
	}
}

// A refused request can be found by its id, once that has passed its grammar.
func TestRefusalNamesTheDelivery(t *testing.T) {
	scheme, _ := Preset("zhisou-v1")
	key, err := NewKey("k1", []byte(strings.Repeat("k", 32)), scheme.SecretSpec())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := NewKeySet(key)
	if err != nil {
		t.Fatal(err)
	}
	v := &Verifier{Scheme: scheme, Keys: keys, Now: func() time.Time { return time.Unix(1700000000, 0) }}
	for defect, c := range map[string]struct {
		id, timestamp         string
		wantID, wantTimestamp string
	}{
		"wrong MAC":           {"dlv_1", "1700000000", "dlv_1", "1700000000"},
		"out of the window":   {"dlv_1", "1600000000", "dlv_1", "1600000000"},
		"malformed timestamp": {"dlv_1", "1e9", "dlv_1", ""},
		"malformed id":        {"dlv.1", "1700000000", "", ""},
	} {
		r := Request{Header: http.Header{"X-Webhook-Key-Id": {"k1"}, "X-Webhook-Timestamp": {c.timestamp},
			"X-Webhook-Delivery-Id": {c.id}, "X-Webhook-Signature": {strings.Repeat("0", 64)}}}
		_, err := v.Verify(r)
		var refused *Error
		if !errors.As(err, &refused) || refused.DeliveryID != c.wantID || refused.Timestamp != c.wantTimestamp {
			t.Errorf("%s: %+v, want id %q, timestamp %q", defect, refused, c.wantID, c.wantTimestamp)
		}
	}
}
