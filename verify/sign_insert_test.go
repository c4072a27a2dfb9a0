package verify

import (
	"errors"
	"net/http"
	"testing"
)

// The sender of a Mailgun vector makes it again.
func TestSignRequestMakesTheVectorsOfMailgun(t *testing.T) {
	made := 0
	for _, v := range readVectors(t, "mailgun.json") {
		if v.Expect != "valid" {
			continue
		}
		s, _ := Preset("mailgun")
		ver, err := v.verifier(s)
		if err != nil {
			t.Fatal(err)
		}
		env, err := ver.Verify(v.request(t))
		if err != nil {
			t.Fatal(err)
		}
		want, _, err := jsonFind(v.request(t).Body, []string{"signature", "signature"}, depthVerified)
		if err != nil {
			t.Fatal(err)
		}
		r, err := ver.SignRequest(Request{Method: "POST", Body: []byte(`{"event-data":{}}`)}, SignOptions{DeliveryID: env.DeliveryID, Time: env.Time})
		if err != nil {
			t.Fatal(err)
		}
		wanted := `{"event-data":{},"signature":{"timestamp":"` + env.Timestamp + `","token":"` + env.DeliveryID + `","signature":"` + want + `"}}`
		if string(r.Body) != wanted {
			t.Errorf("%s, want %s", r.Body, wanted)
		}
		var refused *Error
		if _, err := ver.SignRequest(r, SignOptions{DeliveryID: env.DeliveryID, Time: env.Time}); !errors.As(err, &refused) || refused.Reason != ReasonHeaderDuplicated {
			t.Errorf("signed twice: %v", err)
		}
		made++
	}
	if made == 0 {
		t.Error("no vector is valid")
	}
}

func TestInsertJSON(t *testing.T) {
	for _, c := range []struct {
		defect, body, path, want string
	}{
		{"an empty object", `{}`, "a", `{"a":"v"}`},
		{"blanks stay where they are", "\n{ \"b\" : 1 }\n", "a", "\n{ \"b\" : 1 ,\"a\":\"v\"}\n"},
		{"the object is there", `{"a":{"c":1},"b":2}`, "a.b", `{"a":{"c":1,"b":"v"},"b":2}`},
		{"the object is there and empty", `{"a":{}}`, "a.b", `{"a":{"b":"v"}}`},
		{"no object is there", `{"b":2}`, "a.b.c", `{"b":2,"a":{"b":{"c":"v"}}}`},
		{"an element of an array", `{"value":[{"x":1},{"y":1}]}`, "/value/1/s", `{"value":[{"x":1},{"y":1,"s":"v"}]}`},
		{"a name to escape", `{}`, `/a~1"b`, `{"a/\"b":"v"}`},
		{"the name inside another object", `{"x":{"a":{}}}`, "a.b", `{"x":{"a":{}},"a":{"b":"v"}}`},
		{"a number as written", `{"n":12345678901234567890.10}`, "a", `{"n":12345678901234567890.10,"a":"v"}`},
		{"no element is there", `{"value":[]}`, "/value/0/s", ""},
		{"no array is there", `{}`, "/value/0/s", ""},
		{"a text where the object should be", `{"a":"x"}`, "a.b", ""},
		{"an array at the top", `[]`, "a", ""},
		{"no JSON", `{"a"`, "b", ""},
		{"no body", ``, "a", ""},
	} {
		path, err := parsePath(c.path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := insertJSON([]byte(c.body), path, "v")
		if string(got) != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %s, %v", c.defect, got, err)
		}
	}
}

func TestSignRequestInFormsAndQueries(t *testing.T) {
	form := compile(t, `{"algo":"hmac-sha256","signature":{"in":"form","name":"the sig"},"template":"{form:t}.{form:id}.{form:x}",
		"timestamp":{"from":"form:t"},"id":{"from":"form:id"}}`)
	query := compile(t, `{"algo":"hmac-sha256","key_id":{"from":"query:kid"},"signature":{"in":"query","name":"sig"},"template":"{query:t}.{body}","timestamp":{"from":"query:t"}}`)
	sign := func(s Scheme, r Request, id string) (Request, error) {
		v := Verifier{Scheme: s, Keys: testSet(t, testKey(t, "k1", 0, 0)), Now: at(t0)}
		return v.SignRequest(r, SignOptions{DeliveryID: id})
	}
	for _, c := range []struct {
		defect string
		s      Scheme
		r      Request
		id     string
		want   string // begins the body or the URL
		err    error
	}{
		{"an id with a blank", form, Request{Body: []byte("x=1")}, "a b", "", ErrMalformed},
		{"what is there stays", form, Request{Body: []byte("id=7&t=1760000000&x=1")}, "a b", "id=7&t=1760000000&x=1&the+sig=", nil},
		{"beside the rest", form, Request{Body: []byte("x=1")}, "8", "x=1&t=1760000000&id=8&the+sig=", nil},
		{"no delivery id", form, Request{Body: []byte("x=1")}, "", "", nil},
		{"a value that only the sender knows", form, Request{}, "8", "", nil},
		{"a signature that is there", form, Request{Body: []byte("x=1&the+sig=0")}, "8", "", ErrMalformed},
		{"a timestamp outside the window", form, Request{Body: []byte("t=1&x=1")}, "8", "", ErrWindow},
		{"no query", query, Request{URL: "/in"}, "", "/in?t=1760000000&kid=k1&sig=", nil},
		{"a query", query, Request{URL: "/in?a=%2F"}, "", "/in?a=%2F&t=1760000000&kid=k1&sig=", nil},
		{"another key's id", query, Request{URL: "/in?kid=k2"}, "", "", ErrSignature},
	} {
		r, err := sign(c.s, c.r, c.id)
		got := r.URL
		if c.s == form {
			got = string(r.Body)
		}
		if c.want == "" {
			if err == nil || c.err != nil && !errors.Is(err, c.err) || got != "" {
				t.Errorf("%s: %q, %v", c.defect, got, err)
			}
			continue
		}
		if err != nil || len(got) != len(c.want)+64 || got[:len(c.want)] != c.want {
			t.Errorf("%s: %q, %v", c.defect, got, err)
		}
	}
}

// A delivery id that is made of several headers is cut at what stands between them.
func TestSignSplitsADeliveryID(t *testing.T) {
	for _, c := range []struct {
		from, id string
		header   http.Header
		want     string // of both headers
	}{
		{"{header:A}/{header:B}", "https://x/y/1", nil, "https://x/y 1"},
		{"{header:A}/{header:B}", "1", nil, ""},
		{"{header:A}/{header:B}", "/1", nil, ""},
		{"{header:A}/{header:B}", "1/", nil, ""},
		{"{header:A}/{header:B}", "", nil, ""},
		{"<{header:A}:{header:B}>", "<a:b:c>", nil, "a:b c"},
		{"<{header:A}:{header:B}>", "a:b", nil, ""},
		{"{header:A}/{header:B}", "", http.Header{"A": {"s"}, "B": {"t"}}, "s t"},
		{"{header:A}/{header:B}", "u/v", http.Header{"A": {"s"}}, ""},
		{"{header:A}{header:B}", "uv", nil, ""},
		{"{header:A}/{json:b}", "u/v", http.Header{"A": {"s"}}, "s "},
	} {
		s := compile(t, `{"algo":"hmac-sha256","signature":{"name":"S"},"template":"{body}","id":{"from":"`+c.from+`"}}`)
		v := Verifier{Scheme: s, Keys: testSet(t, testKey(t, "k1", 0, 0)), Now: at(t0)}
		r, err := v.SignRequest(Request{Header: c.header, Body: []byte(`{"b":"v"}`)}, SignOptions{DeliveryID: c.id})
		if got := r.Header.Get("A") + " " + r.Header.Get("B"); (err == nil) != (c.want != "") || err == nil && got != c.want {
			t.Errorf("%s of %s: %q, %v", c.id, c.from, got, err)
		}
	}
}
