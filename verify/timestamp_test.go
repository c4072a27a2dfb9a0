package verify

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestTimestampFormats(t *testing.T) {
	at1700 := time.Unix(1700000000, 0).UTC() // Tue, 14 Nov 2023 22:13:20 GMT
	for _, c := range []struct {
		format, text string
		ok           bool
	}{
		{"unix-s", "1700000000", true},
		{"unix-s", "1700000000000", false},
		{"unix-ms", "1700000000000", true},
		{"unix-ms", "1700000000123", true},
		{"unix-ms", "01700000000000", false},
		{"unix-ms", "1700000000000000", false},
		{"rfc3339", "2023-11-14T22:13:20Z", true},
		{"rfc3339", "2023-11-14T23:13:20+01:00", true},
		{"rfc3339", "2023-11-14T22:13:20.123456789Z", true},
		{"rfc3339", "2023-11-14T22:13:20.1234567890Z", false},
		{"rfc3339", "2023-11-14T22:13:20.Z", false},
		{"rfc3339", "2023-11-14T22:13:20,5Z", false},
		{"rfc3339", "2023-11-14T22:13:20", false},
		{"rfc3339", "2023-11-14t22:13:20z", false},
		{"rfc3339", "2023-11-14 22:13:20Z", false},
		{"rfc3339", "2023-11-14T22:13:20+0100", false},
		{"rfc3339", "2023-11-14T22:13:20+25:00", false},
		{"rfc3339", "2023-13-14T22:13:20Z", false},
		{"rfc3339", "2023-02-30T22:13:20Z", false},
		{"rfc3339", "2023-11-14T22:13:60Z", false},
		{"rfc3339", "2023-11-14T22:13Z", false},
		{"rfc3339", "", false},
		{"http-date", "Tue, 14 Nov 2023 22:13:20 GMT", true},
		{"http-date", "Wed, 14 Nov 2023 22:13:20 GMT", false},
		{"http-date", "Tue, 14 Nov 2023 22:13:20 UTC", false},
		{"http-date", "Tuesday, 14-Nov-23 22:13:20 GMT", false},
		{"http-date", "tue, 14 nov 2023 22:13:20 GMT", false},
	} {
		got, ok := timeFormats[c.format].parse(c.text)
		if ok != c.ok || ok && got.Truncate(time.Second).Unix() != at1700.Unix() {
			t.Errorf("%s %q: %v, %v", c.format, c.text, got, ok)
		}
	}
}

func TestWindows(t *testing.T) {
	for _, c := range []struct {
		recipe    string
		tolerance time.Duration
		distance  int64
		ok        bool
	}{
		{`"tolerance_s":60`, 0, -60, true},
		{`"tolerance_s":60`, 0, -61, false},
		{`"tolerance_s":60`, 0, 60, true},
		{`"tolerance_s":60`, 0, 61, false},
		{`"format":"unix-s"`, 0, 300, true},
		{`"format":"unix-s"`, 0, -301, false},
		{`"tolerance_s":60`, 90 * time.Second, 90, true},
		{`"tolerance_s":60`, 30 * time.Second, 31, false},
		{`"tolerance_s":60`, -time.Second, 0, false},
		{`"tolerance_s":5,"past_only":true`, 0, -5, true},
		{`"tolerance_s":5,"past_only":true`, 0, -6, false},
		{`"tolerance_s":5,"past_only":true`, 0, 300, true},
		{`"tolerance_s":5,"past_only":true`, 0, 301, false},
		{`"tolerance_s":600,"past_only":true`, 0, 600, true},
		{`"tolerance_s":null`, 0, -1700000000, true},
		{`"tolerance_s":null`, 0, 900000000000, true},
		{`"tolerance_s":null`, 60 * time.Second, -61, false},
	} {
		s := compile(t, `{"algo":"hmac-sha256","signature":{"name":"S"},"template":"{header:T}.{body}","timestamp":{"from":"header:T",`+c.recipe+`}}`)
		now := time.Unix(1700000000, 0)
		text := fmt.Sprint(1700000000 + c.distance)
		v := Verifier{Scheme: s, Keys: oneKey(t), Now: at(now), Tolerance: c.tolerance}
		env, err := v.Verify(Request{Header: http.Header{"T": {text}, "S": {hexMAC(sha256.New, text+".")}}})
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrWindow) {
			t.Errorf("%s, tolerance %s, distance %d: %v", c.recipe, c.tolerance, c.distance, err)
		}
		if err == nil && (env.Timestamp != text || c.distance < 1e9 && c.distance > -1e9 && env.Distance != time.Duration(c.distance)*time.Second) {
			t.Errorf("%s: %+v", c.recipe, env)
		}
	}
	// Half a second beyond the end is beyond it.
	s := compile(t, `{"algo":"hmac-sha256","signature":{"name":"S"},"template":"{header:T}.{body}","timestamp":{"from":"header:T"}}`)
	v := Verifier{Scheme: s, Keys: oneKey(t), Now: at(time.Unix(1700000300, 500e6))}
	if err := v.CheckHeader(Request{Header: http.Header{"T": {"1700000000"}, "S": {hexMAC(sha256.New, "1700000000.")}}}); !errors.Is(err, ErrWindow) {
		t.Errorf("300.5 s: %v", err)
	}
}

// Linear: the timestamp lies in the signed body, so it is read after the MAC.
func TestTimestampInTheBody(t *testing.T) {
	s := compile(t, `{"algo":"hmac-sha256","signature":{"name":"S"},"template":"{body}","timestamp":{"from":"json:ts","format":"unix-ms","tolerance_s":60}}`)
	v := Verifier{Scheme: s, Keys: oneKey(t), Now: at(time.Unix(1700000000, 0))}
	for body, want := range map[string]Reason{
		`{"ts":1700000000000}`:   "",
		`{"ts":"1700000000000"}`: "",
		`{"ts":1700000061000}`:   ReasonTimestampOutOfWindow,
		`{"ts":1.7e12}`:          ReasonTimestampMalformed,
		`{"ts":true}`:            ReasonHeaderMissing,
		`{}`:                     ReasonHeaderMissing,
		`{"ts":1700000000000,"ts":1700000000000}`: ReasonTimestampMalformed,
		`no json`: ReasonTimestampMalformed,
	} {
		r := Request{Body: []byte(body), Header: http.Header{"S": {hexMAC(sha256.New, body)}}}
		if _, err := v.Verify(r); reasonOf(err) != want {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
		// Unsigned, none of this is looked at.
		r.Header = http.Header{"S": {strings.Repeat("0", 64)}}
		if _, err := v.Verify(r); reasonOf(err) != ReasonSignatureMismatch {
			t.Errorf("%s, unsigned: %v", body, err)
		}
	}
}
