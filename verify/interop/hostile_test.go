package interop

import (
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

func sorted(s []string) []string { slices.Sort(s); return s }

// The rules of ours over which the libraries may differ from us.
const (
	spelling = "a signature has one spelling, and each item of a list is well formed"
	once     = "a single-valued header or field stands once; a comma list may stand on several lines"
	bounded  = "at most 32 candidates"
	loose    = "blanks around an item of a comma list, empty items and items of no use to us are skipped"
	asSigned = "the timestamp is signed as received, in one spelling"
	bothWays = "a window looks both ways"
	plainID  = "a delivery id is ! to ~, and here without a dot"
	anyCase  = "header names are compared without case, over any map"
)

// hostile is one change of a rightly signed request.
type hostile struct {
	defect string
	change func(*hostileRequest)
	valid  bool   // what we say
	rule   string // why the library says the opposite; empty: it says the same
}

// hostileRequest is signed by the library, at the time of the test's clock plus
// offset.
type hostileRequest struct {
	verify.Request
	name  string // of the signature header
	stamp string
	mac   string // as the signature header has it
	// again signs another request in place of this one.
	again func(id string, offset time.Duration)
}

func (r *hostileRequest) set(value string) { r.Header[r.name] = []string{value} }

func (p peer) judge(t *testing.T, h hostile) {
	secret := "whsec" + "_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	r := &hostileRequest{Request: verify.Request{Method: "POST"}}
	r.Body = []byte(`{"id":"evt_1","name":"Zoë"}`)
	r.again = func(id string, offset time.Duration) {
		at := time.Now().Add(offset)
		header, err := p.sign(secret, id, at, r.Body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header, r.stamp = header, unix(at)
		for name := range header {
			if strings.HasSuffix(name, "-Signature") {
				r.name = name
				r.mac = header.Get(name)[strings.LastIndex(header.Get(name), "v1")+3:]
			}
		}
	}
	r.again("msg_1", 0)
	h.change(r)
	_, err := p.ours(t, secret).Verify(r.Request)
	if (err == nil) != h.valid {
		t.Errorf("we say %v", err)
	}
	theirs := p.check(secret, r.Request, false)
	if want := h.valid == (h.rule == ""); (theirs == nil) != want {
		t.Errorf("they say %v, we %v; rule: %q", theirs, err, h.rule)
	}
}

// The clock stands, so that the ends of the window are exact.
func run(t *testing.T, p peer, all []hostile) {
	differ := 0
	for _, h := range all {
		if h.rule != "" {
			differ++
		}
		t.Run(h.defect, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { p.judge(t, h) })
		})
	}
	t.Logf("%d requests, over %d of them we differ", len(all), differ)
}

// common holds for both libraries.
func common() []hostile {
	resign := func(id string, offset time.Duration) func(*hostileRequest) {
		return func(r *hostileRequest) { r.again(id, offset) }
	}
	return []hostile{
		{"nothing", func(*hostileRequest) {}, true, ""},
		{"300 s old", resign("msg_1", -300*time.Second), true, ""},
		{"301 s old", resign("msg_1", -301*time.Second), false, ""},
		{"300 s ahead", resign("msg_1", 300*time.Second), true, ""},
		{"one bit of the body", func(r *hostileRequest) { r.Body[3] ^= 1 }, false, ""},
		{"a newline behind the body", func(r *hostileRequest) { r.Body = append(r.Body, '\n') }, false, ""},
		{"a byte of the body lost", func(r *hostileRequest) { r.Body = r.Body[:len(r.Body)-1] }, false, ""},
		{"no body", func(r *hostileRequest) { r.Body = nil }, false, ""},
		{"invalid UTF-8, signed", func(r *hostileRequest) { r.Body = []byte("\xff\xfe\x00"); r.again("msg_1", 0) }, true, ""},
		{"empty body, signed", func(r *hostileRequest) { r.Body = nil; r.again("msg_1", 0) }, true, ""},
		{"no signature", func(r *hostileRequest) { delete(r.Header, r.name) }, false, ""},
		{"empty signature", func(r *hostileRequest) { r.set("") }, false, ""},
		{"signature header on two lines, the good one first", func(r *hostileRequest) {
			r.Header[r.name] = append(r.Header[r.name], r.Header.Get(r.name))
		}, false, once},
		{"signature header on two lines, the bad one first", func(r *hostileRequest) {
			r.Header[r.name] = append([]string{"v1"}, r.Header.Get(r.name))
		}, false, ""},
	}
}

func TestHostileToStripe(t *testing.T) {
	list := func(items ...string) func(*hostileRequest) {
		return func(r *hostileRequest) {
			r.set(strings.NewReplacer("T", r.stamp, "GOOD", r.mac, "UPPER", strings.ToUpper(r.mac)).Replace(strings.Join(items, ",")))
		}
	}
	zeros := strings.Repeat("0", 64)
	many := func(n int) string { return strings.Repeat("v1="+zeros+",", n) + "v1=GOOD" }
	run(t, peers()[0], append(common(), []hostile{
		{"301 s ahead", func(r *hostileRequest) { r.again("", 301*time.Second) }, false, bothWays},
		{"a year ahead", func(r *hostileRequest) { r.again("", 365*24*time.Hour) }, false, bothWays},
		{"before 1970", func(r *hostileRequest) { r.again("", -40*365*24*time.Hour) }, false, ""},
		{"upper-case hex", list("t=T", "v1=UPPER"), false, spelling},
		{"63 characters", func(r *hostileRequest) { r.set("t=" + r.stamp + ",v1=" + r.mac[:63]) }, false, ""},
		{"62 characters", func(r *hostileRequest) { r.set("t=" + r.stamp + ",v1=" + r.mac[:62]) }, false, ""},
		{"66 characters", list("t=T", "v1=GOOD00"), false, ""},
		{"base64 of the MAC", func(r *hostileRequest) {
			raw, _ := hex.DecodeString(r.mac)
			r.set("t=" + r.stamp + ",v1=" + strings.TrimRight(base64.StdEncoding.EncodeToString(raw), "="))
		}, false, ""},
		{"a NUL behind the MAC", list("t=T", "v1=GOOD\x00"), false, ""},
		{"a bad one before", list("t=T", "v1="+zeros, "v1=GOOD"), true, ""},
		{"a bad one behind", list("t=T", "v1=GOOD", "v1="+zeros), true, ""},
		{"the good one twice", list("t=T", "v1=GOOD", "v1=GOOD"), true, ""},
		{"one that is no hex before", list("t=T", "v1=zz", "v1=GOOD"), true, ""},
		{"an empty one before", list("t=T", "v1=", "v1=GOOD"), true, ""},
		{"another version beside", list("t=T", "v0="+zeros, "v1=GOOD", "v2=x"), true, ""},
		{"only another version", list("t=T", "v0=GOOD"), false, ""},
		{"version in upper case", list("t=T", "V1=GOOD"), false, ""},
		{"timestamp behind the signature", list("v1=GOOD", "t=T"), true, ""},
		{"no timestamp", list("v1=GOOD"), false, ""},
		{"empty timestamp", list("t=", "v1=GOOD"), false, ""},
		{"another timestamp", list("t=1T", "v1=GOOD"), false, ""},
		{"timestamp twice, equal", list("t=T", "t=T", "v1=GOOD"), false, once},
		{"timestamp twice, the right one last", list("t=1", "t=T", "v1=GOOD"), false, once},
		{"timestamp twice, the right one first", list("t=T", "t=1", "v1=GOOD"), false, ""},
		{"timestamp with a plus", list("t=+T", "v1=GOOD"), false, asSigned},
		{"timestamp with a zero in front", list("t=0T", "v1=GOOD"), false, asSigned},
		{"timestamp with a fraction", list("t=T.0", "v1=GOOD"), false, ""},
		{"timestamp in milliseconds", list("t=T000", "v1=GOOD"), false, ""},
		{"timestamp with an underscore", func(r *hostileRequest) { r.set("t=" + r.stamp[:3] + "_" + r.stamp[3:] + ",v1=" + r.mac) }, false, ""},
		{"timestamp NaN", list("t=NaN", "v1=GOOD"), false, ""},
		{"a blank behind the comma", list("t=T", " v1=GOOD"), true, loose},
		{"an empty item", list("t=T", "", "v1=GOOD"), true, loose},
		{"a comma at the end", list("t=T", "v1=GOOD", ""), true, loose},
		{"another version with two equals signs", list("t=T", "v2=a=b", "v1=GOOD"), true, loose},
		{"an item without a tag", list("t=T", "GOOD", "v1=GOOD"), false, ""},
		{"semicolons", func(r *hostileRequest) { r.set("t=" + r.stamp + ";v1=" + r.mac) }, false, ""},
		{"32 candidates, the good one last", list("t=T", many(31)), true, ""},
		{"33 candidates, the good one last", list("t=T", many(32)), false, bounded},
		{"list on two lines", func(r *hostileRequest) {
			r.Header[r.name] = []string{"t=" + r.stamp, "v1=" + r.mac}
		}, true, once},
	}...))
}

func TestHostileToStandardWebhooks(t *testing.T) {
	list := func(items ...string) func(*hostileRequest) {
		return func(r *hostileRequest) { r.set(strings.ReplaceAll(strings.Join(items, " "), "GOOD", r.mac)) }
	}
	header := func(name, value string) func(*hostileRequest) {
		return func(r *hostileRequest) { r.Header.Set(name, strings.ReplaceAll(value, "T", r.stamp)) }
	}
	signed := func(id string) func(*hostileRequest) { return func(r *hostileRequest) { r.again(id, 0) } }
	zeros := base64.StdEncoding.EncodeToString(make([]byte, 32))
	run(t, peers()[1], append(common(), []hostile{
		{"301 s ahead", func(r *hostileRequest) { r.again("msg_1", 301*time.Second) }, false, ""},
		{"hex of the MAC", func(r *hostileRequest) {
			raw, _ := base64.StdEncoding.DecodeString(r.mac)
			r.set("v1," + hex.EncodeToString(raw))
		}, false, ""},
		{"padding dropped", func(r *hostileRequest) { r.set("v1," + strings.TrimRight(r.mac, "=")) }, false, ""},
		{"padding doubled", list("v1,GOOD="), false, ""},
		{"free bits set", func(r *hostileRequest) {
			r.set("v1," + r.mac[:42] + string(r.mac[42]+1) + "=")
		}, false, ""},
		{"a line feed inside", func(r *hostileRequest) { r.set("v1," + r.mac[:9] + "\n" + r.mac[9:]) }, false, ""},
		{"a comma behind the MAC", list("v1,GOOD,x"), false, spelling},
		{"no version", list("GOOD"), false, ""},
		{"only the version", list("v1"), false, ""},
		{"version in upper case", list("V1,GOOD"), false, ""},
		{"public-key version", list("v1a,GOOD"), false, ""},
		{"equals sign for comma", list("v1=GOOD"), false, ""},
		{"a bad one before", list("v1,"+zeros, "v1,GOOD"), true, ""},
		{"a bad one behind", list("v1,GOOD", "v1,"+zeros), true, ""},
		{"one that is no base64 before", list("v1,!!!!", "v1,GOOD"), true, ""},
		{"another version beside", list("v2,x", "v1,GOOD", "v1a,"+zeros), true, ""},
		{"an item without a version before", list("GOOD", "v1,GOOD"), false, spelling},
		{"two blanks between items", list("v1,"+zeros, "", "v1,GOOD"), false, spelling},
		{"a blank at the end", list("v1,GOOD", ""), false, spelling},
		{"a blank behind the comma", list("v1, GOOD"), false, ""},
		{"commas between items", func(r *hostileRequest) { r.set("v1," + zeros + ",v1," + r.mac) }, false, ""},
		{"32 candidates, the good one last", list(strings.Repeat("v1,"+zeros+" ", 31) + "v1,GOOD"), true, ""},
		{"33 candidates, the good one last", list(strings.Repeat("v1,"+zeros+" ", 32) + "v1,GOOD"), false, bounded},
		{"list on two lines", func(r *hostileRequest) { r.Header[r.name] = []string{"v1,GOOD", "v1," + r.mac} }, false, ""},
		{"list on two lines, the good one first", func(r *hostileRequest) { r.Header[r.name] = []string{"v1," + r.mac, "v1," + zeros} }, false, once},
		{"another id", header("webhook-id", "msg_2"), false, ""},
		{"no id", func(r *hostileRequest) { r.Header.Del("webhook-id") }, false, ""},
		{"id twice", func(r *hostileRequest) { r.Header.Add("webhook-id", "msg_2") }, false, once},
		{"id in its underscore spelling beside", func(r *hostileRequest) { r.Header["Webhook_id"] = []string{"msg_2"} }, false, once},
		{"id with a dot, signed", signed("msg.1"), false, plainID},
		{"id with a blank, signed", signed("msg 1"), false, plainID},
		{"id outside ASCII, signed", signed("msg_é"), false, plainID},
		{"id of 257 characters, signed", signed(strings.Repeat("m", 257)), false, plainID},
		{"another timestamp", header("webhook-timestamp", "1T"), false, ""},
		{"no timestamp", func(r *hostileRequest) { r.Header.Del("webhook-timestamp") }, false, ""},
		{"timestamp twice", func(r *hostileRequest) { r.Header.Add("webhook-timestamp", "1") }, false, once},
		{"timestamp with a plus", header("webhook-timestamp", "+T"), false, asSigned},
		{"timestamp with a zero in front", header("webhook-timestamp", "0T"), false, asSigned},
		{"timestamp with a fraction", header("webhook-timestamp", "T.0"), false, ""},
		{"timestamp in milliseconds", header("webhook-timestamp", "T000"), false, ""},
		{"headers in lower case", func(r *hostileRequest) {
			lower := http.Header{}
			for name, lines := range r.Header {
				lower[strings.ToLower(name)] = lines
			}
			r.Header = lower
		}, true, anyCase},
	}...))
}
