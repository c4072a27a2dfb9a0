package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"
)

// change is what somebody on the way does to a request.
type change struct {
	defect string
	do     func(*Verifier, *Request)
	reason Reason // empty: the change is not covered, and the request stays valid
}

// replace changes the first place in the body, which must be there.
func replace(from, to string) func(*Verifier, *Request) {
	return func(_ *Verifier, r *Request) {
		if !bytes.Contains(r.Body, []byte(from)) {
			panic("no " + from)
		}
		r.Body = bytes.Replace(r.Body, []byte(from), []byte(to), 1)
	}
}

func setHeader(name string, lines ...string) func(*Verifier, *Request) {
	return func(_ *Verifier, r *Request) { r.Header[name] = lines }
}

func setURL(url string) func(*Verifier, *Request) {
	return func(v *Verifier, r *Request) { v.URL, r.URL = url, url }
}

func judgeChanges(t *testing.T, name, recipe string, changes []change) {
	t.Helper()
	v := vectorNamed(t, name)
	if recipe == "" {
		recipe = string(v.Scheme)
	}
	for _, c := range changes {
		ver, err := v.verifier(compile(t, recipe))
		if err != nil {
			t.Fatal(err)
		}
		r := v.request(t)
		r.Header = r.Header.Clone()
		if _, err := ver.Verify(r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c.do(ver, &r)
		if _, err := ver.Verify(r); reasonOf(err) != c.reason {
			t.Errorf("%s: %s: %v, want %s", name, c.defect, err, c.reason)
		}
	}
}

func TestTwilioCovers(t *testing.T) {
	const mismatch = ReasonSignatureMismatch
	many := strings.Repeat("a=1&", maxPairs) + "a=1"
	judgeChanges(t, "twilio/https-443-added", "", []change{
		{"another path", setURL("https://mycompany.com/myapp2.php?foo=1&bar=2"), mismatch},
		{"another query", setURL("https://mycompany.com/myapp.php?foo=1&bar=3"), mismatch},
		{"another port", setURL("https://mycompany.com:444/myapp.php?foo=1&bar=2"), mismatch},
		{"the usual port", setURL("https://mycompany.com:443/myapp.php?foo=1&bar=2"), ""},
		{"http", setURL("http://mycompany.com/myapp.php?foo=1&bar=2"), mismatch},
		{"a value", replace("Digits=1234", "Digits=1235"), mismatch},
		{"a name", replace("Digits=", "Digitt="), mismatch},
		{"the border of name and value, which is not signed", replace("Digits=1", "Digit=s1"), ""},
		{"a field less", replace("&Digits=1234", ""), mismatch},
		{"a field more", replace("Digits=1234", "Digits=1234&x=y"), mismatch},
		{"a value twice", replace("Digits=1234", "Digits=1234&Digits=1234"), ""},
		{"two values", replace("Digits=1234", "Digits=1234&Digits=1"), mismatch},
		{"a broken escape", replace("Digits=1234", "Digits=%zz"), ReasonBodyUnparsable},
		{"more fields than are read", func(_ *Verifier, r *Request) { r.Body = []byte(many) }, ReasonBodyUnparsable},
		{"the form called JSON", setHeader("Content-Type", "application/json"), ReasonNotCovered},
		{"two types", setHeader("Content-Type", "application/json", "application/x-www-form-urlencoded"), ReasonHeaderDuplicated},
		{"a charset", setHeader("Content-Type", "application/x-www-form-urlencoded; charset=utf-8"), ""},
		{"no type", setHeader("Content-Type"), ""},
		{"two signatures", setHeader("X-Twilio-Signature", "a", "b"), ReasonHeaderDuplicated},
		{"a twin", setHeader("X_Twilio_Signature", "a"), ReasonHeaderDuplicated},
	})
	const hash = "0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620"
	url := "https://mycompany.com/myapp.php?bodySHA256="
	judgeChanges(t, "twilio/json-bodySHA256-only", "", []change{
		{"the body", replace("true", "false"), mismatch},
		{"no body", func(_ *Verifier, r *Request) { r.Body = nil }, mismatch},
		{"another hash", setURL(url + strings.Repeat("0", 64)), mismatch},
		{"upper case", setURL(url + strings.ToUpper(hash)), mismatch},
		{"two hashes", setURL(url + hash + "&bodySHA256=" + hash), ReasonHeaderDuplicated},
		{"no hash", setURL("https://mycompany.com/myapp.php"), ReasonNotCovered},
	})
}

func TestTwilioSpellings(t *testing.T) {
	for url, want := range map[string]string{
		"https://a.b/c?d=e'f":        "https://a.b/c?d=e'f https://a.b:443/c?d=e'f https://a.b/c?d=e%27f https://a.b:443/c?d=e%27f",
		"https://a.b:8/c?d=e'f":      "https://a.b:8/c?d=e'f https://a.b/c?d=e'f https://a.b/c?d=e%27f https://a.b:8/c?d=e%27f",
		"http://u:p@a.b/c":           "http://u:p@a.b/c http://u:p@a.b:80/c",
		"https://[::1]/c?d=%27":      "https://[::1]/c?d=%27 https://[::1]:443/c?d=%27",
		"https://[::1]:444":          "https://[::1]:444 https://[::1]",
		"https://a.b/?x=\"<a b>\xc3": "https://a.b/?x=\"<a b>\xc3 https://a.b:443/?x=\"<a b>\xc3 https://a.b/?x=%22%3Ca%20b%3E%C3 https://a.b:443/?x=%22%3Ca%20b%3E%C3",
	} {
		if got := strings.Join(twilioURLs(url), " "); got != want {
			t.Errorf("%s:\n%s\n%s", url, got, want)
		}
	}
}

func adyenItemsBody(items ...string) []byte {
	for i := range items {
		items[i] = `{"NotificationRequestItem":` + items[i] + `}`
	}
	return []byte(`{"notificationItems":[` + strings.Join(items, ",") + `]}`)
}

func TestAdyenCovers(t *testing.T) {
	v := vectorNamed(t, "adyen/item-event")
	item := string(v.request(t).Body)
	item = item[strings.Index(item, `{"psp`) : len(item)-len("}]}")]
	unsigned := strings.Replace(item, `"hmacSignature"`, `"other"`, 1)
	forged := strings.Replace(item, `"value":1000`, `"value":9000`, 1)
	body := func(items ...string) func(*Verifier, *Request) {
		return func(_ *Verifier, r *Request) { r.Body = adyenItemsBody(items...) }
	}
	many := make([]string, maxAdyenItems+1)
	for i := range many {
		many[i] = item
	}
	changes := []change{
		{"the same item twice", body(item, item), ""},
		{"as many items as are read", body(many[1:]...), ""},
		{"one more", body(many...), ReasonSignatureMalformed},
		{"no item", body(), ReasonSignatureMissing},
		{"no list", replace("notificationItems", "items"), ReasonSignatureMissing},
		{"an item without a signature behind", body(item, unsigned), ReasonSignatureMissing},
		{"an item without a signature in front", body(unsigned, item), ReasonSignatureMissing},
		{"a forged item behind", body(item, forged), ReasonSignatureMismatch},
		{"a forged item in front", body(forged, item), ReasonSignatureMismatch},
		{"an item of another kind", replace("NotificationRequestItem", "X"), ReasonSignatureMissing},
		{"a reason", replace(`"reason":"reason"`, `"reason":"other"`), ""},
		{"a field twice", replace(`"eventCode":`, `"eventCode":"X","eventCode":`), ReasonBodyUnparsable},
		{"the list twice", replace(`"notificationItems":`, `"notificationItems":[],"notificationItems":`), ReasonBodyUnparsable},
		{"an object", replace(`"success":"true"`, `"success":{"a":1}`), ReasonBodyUnparsable},
		{"a list for an amount", replace(`"amount":{"currency":"EUR","value":1000}`, `"amount":[1]`), ReasonSignatureMismatch},
		{"an object in place of the list", func(_ *Verifier, r *Request) {
			r.Body = []byte(`{"notificationItems":{"0":{"NotificationRequestItem":` + item + `},"x":{"NotificationRequestItem":` + forged + `}}}`)
		}, ReasonBodyUnparsable},
		{"the list again in another case", replace(`{"live"`, `{"NotificationItems":[],"live"`), ReasonBodyUnparsable},
		{"a field again in another case", replace(`"success":"true"`, `"success":"true","PSPReference":"forged"`), ReasonBodyUnparsable},
		{"a field in another case, escaped", replace(`"success":"true"`, `"success":"true","\u0050spReference":"forged"`), ReasonBodyUnparsable},
		{"a field with a letter that folds", replace(`"success":"true"`, `"success":"true","p\u017fpReference":"forged"`), ReasonBodyUnparsable},
		{"a field in another case where no path leads", replace(`"reason":"reason"`, `"reason":"reason","x":{"PSPReference":"x"}`), ""},
		{"true as a word", replace(`"success":"true"`, `"success":true`), ""},
		{"no JSON", replace(`}]}`, `}]`), ReasonBodyUnparsable},
		{"a number for a signature", replace(`"hmacSignature":"ipnxGCaUZ4l8TUW75a71/ghd2Fe5ffvX0pV4TLTntIc="`, `"hmacSignature":1`), ReasonSignatureMissing},
		{"an unpadded signature", replace(`TLTntIc="`, `TLTntIc"`), ReasonSignatureMalformed},
		{"too deep", replace(`"reason":"reason"`, `"reason":`+strings.Repeat("[", 40)+strings.Repeat("]", 40)), ReasonBodyUnparsable},
	}
	for _, field := range []string{
		`"pspReference":"psp`, `"originalReference":"o`, `"merchantAccountCode":"m`, `"merchantReference":"r`,
		`"currency":"E`, `"value":1`, `"eventCode":"E`, `"success":"t`,
	} {
		changed := field[:len(field)-1] + string(field[len(field)-1]+1)
		changes = append(changes, change{field, replace(field, changed), ReasonSignatureMismatch})
	}
	judgeChanges(t, "adyen/item-event", "", changes)
	// Of P:O:M:a:b:1:EUR:E:true other fields could be made if others held colons.
	s := compile(t, string(v.Scheme))
	k, _ := NewKey("", []byte(v.Secret), s.SecretSpec())
	sum := base64.StdEncoding.EncodeToString(k.mac(hashSHA256, []byte("P:O:M:a:b:1:EUR:E:true")))
	for fields, want := range map[string]Reason{
		`"pspReference":"P","originalReference":"O","merchantAccountCode":"M","merchantReference":"a:b"`: "",
		`"pspReference":"P:O","originalReference":"M","merchantAccountCode":"a","merchantReference":"b"`: ReasonBodyUnparsable,
	} {
		ver := Verifier{Scheme: s, Keys: testSet(t, k)}
		_, err := ver.Verify(Request{Body: adyenItemsBody(`{` + fields + `,"amount":{"value":1,"currency":"EUR"},"eventCode":"E",` +
			`"success":"true","additionalData":{"hmacSignature":"` + sum + `"}}`)})
		if reasonOf(err) != want {
			t.Errorf("%s: %v, want %q", fields, err, want)
		}
	}
}

func TestBraintreeCovers(t *testing.T) {
	const pair = "integration_public_key%7Cfde05ee185871053c6185af6a90b62ac0b4fa5d3"
	changes := []change{
		{"the payload", replace("PG5v", "PG5w"), ReasonSignatureMismatch},
		{"no newline at the end", replace("%0A", ""), ""},
		{"two newlines", replace("%0A", "%0A%0A"), ReasonSignatureMismatch},
		{"the signature", replace("fde05", "fde06"), ReasonSignatureMismatch},
		{"another public key", replace("integration_public_key", "integration_public_kez"), ReasonSignatureMismatch},
		{"no public key", replace("integration_public_key", ""), ReasonSignatureMismatch},
		{"a pair of another key in front", replace(pair, "x%7C"+strings.Repeat("0", 40)+"%26"+pair), ""},
		{"a pair that is none behind", replace(pair, pair+"%26x"), ""},
		{"no pair", replace("%7C", ""), ReasonSignatureMalformed},
		{"upper case", replace("fde05", "FDE05"), ReasonSignatureMalformed},
		{"ten thousand pairs", replace(pair, pair+strings.Repeat("%26x%7C", 10000)), ReasonSignatureMalformed},
		{"33 pairs", replace(pair, strings.Repeat(pair+"%26", 32)+pair), ReasonSignatureMalformed},
		{"no signature", replace("bt_signature", "signature"), ReasonSignatureMissing},
		{"no payload", replace("bt_payload", "payload"), ReasonHeaderMissing},
		{"two payloads", replace("bt_payload=", "bt_payload=x&bt_payload="), ReasonHeaderDuplicated},
		{"two signatures", replace("bt_signature=", "bt_signature=x&bt_signature="), ReasonHeaderDuplicated},
		{"a payload that PHP takes", replace("%0A", "%0A&bt.payload=x"), ReasonHeaderDuplicated},
		{"a payload with a blank in front", replace("%0A", "%0A&+bt_payload=x"), ReasonHeaderDuplicated},
		{"a payload that is a list", replace("%0A", "%0A&bt_payload%5B%5D=x"), ReasonHeaderDuplicated},
		{"a payload with an open bracket", replace("%0A", "%0A&bt%5Bpayload=x"), ReasonHeaderDuplicated},
		{"a payload that ends at a NUL", replace("%0A", "%0A&bt_payload%00x=x"), ReasonHeaderDuplicated},
		{"a payload in capitals", replace("%0A", "%0A&BT_PAYLOAD=x"), ReasonHeaderDuplicated},
		{"JSON that holds the form", func(_ *Verifier, r *Request) {
			r.Header["Content-Type"] = []string{"application/json"}
			r.Body = []byte(`{"bt_payload":"x","a":"&` + string(r.Body) + `&"}`)
		}, ReasonNotCovered},
		{"two types", setHeader("Content-Type", "application/x-www-form-urlencoded", "application/json"), ReasonNotCovered},
		{"no type", setHeader("Content-Type"), ""},
		{"a payload behind a semicolon", replace("%0A", "%0A&x;bt_payload=x"), ReasonBodyUnparsable},
		{"a name that is longer", replace("%0A", "%0A&bt_payload_x=x"), ""},
		{"more fields than are read", replace("bt_payload", strings.Repeat("a=1&", maxPairs)+"bt_payload"), ReasonBodyUnparsable},
		{"a field more", replace("bt_payload", "x=y&bt_payload"), ""},
		{"no form", replace("%0A", "%zz"), ReasonBodyUnparsable},
	}
	judgeChanges(t, "braintree/valid", "", changes)
	s := compile(t, `{"algo":"code:braintree"}`)
	for _, secret := range []string{"private", "|private", "public|"} {
		k, err := NewKey("", []byte(secret), s.SecretSpec())
		if err != nil {
			t.Fatal(err)
		}
		if err := (&Verifier{Scheme: s, Keys: testSet(t, k)}).Check(); err == nil {
			t.Errorf("secret %s was taken", secret)
		}
	}
	// An empty private half is one that anybody has.
	k, _ := NewKey("", []byte("public"), s.SecretSpec())
	ver := Verifier{Scheme: s, Keys: testSet(t, k)}
	body := "bt_payload=x&bt_signature=public%7C" + hex.EncodeToString(braintreeSum("", "x"))
	if _, err := ver.Verify(Request{Body: []byte(body)}); reasonOf(err) != ReasonSignatureMismatch {
		t.Errorf("a signature without a private key: %v", err)
	}
}

func TestSNSCovers(t *testing.T) {
	const topic = "arn:aws:sns:us-west-2:123456789012:MyTopic"
	changes := []change{
		{"the topic pinned", func(v *Verifier, _ *Request) { v.Params = map[string]string{snsTopic: topic} }, ""},
		{"another topic pinned", func(v *Verifier, _ *Request) { v.Params = map[string]string{snsTopic: topic + "2"} }, ReasonClaimMismatch},
		{"the version", replace(`Version": "2"`, `Version": "1"`), ReasonSignatureMismatch},
		{"a number for the version", replace(`Version": "2"`, `Version": 2`), ReasonBodyUnparsable},
		{"no version", replace(`SignatureVersion`, `X`), ReasonAlgorithmRefused},
		{"the type", replace(`"Notification"`, `"UnsubscribeConfirmation"`), ReasonHeaderMissing},
		{"a type that is none", replace(`"Notification"`, `"notification"`), ReasonBodyUnparsable},
		{"no subject", replace(`"Subject": "My First Message", `, ``), ReasonSignatureMismatch},
		{"no message", replace(`"Message":`, `"X":`), ReasonHeaderMissing},
		{"no signature", replace(`"Signature":`, `"X":`), ReasonSignatureMissing},
		{"an empty signature", func(_ *Verifier, r *Request) {
			r.Body = append(r.Body[:bytes.Index(r.Body, []byte(`"Signature":`))], `"Signature":""}`...)
		}, ReasonSignatureMissing},
		{"a short signature", func(_ *Verifier, r *Request) {
			r.Body = append(r.Body[:bytes.Index(r.Body, []byte(`"Signature":`))], `"Signature":"AAAA"}`...)
		}, ReasonSignatureMalformed},
		{"a member twice", replace(`"Message":`, `"Message":"x","Message":`), ReasonBodyUnparsable},
		{"a member again in another case", replace(`"Message":`, `"message":"forged","Message":`), ReasonBodyUnparsable},
		{"a member that is not there, in another case", replace(`"Message":`, `"token":"forged","Message":`), ReasonBodyUnparsable},
		{"the header of another type", setHeader("X-Amz-Sns-Message-Type", "SubscriptionConfirmation"), ReasonHeaderDuplicated},
		{"only the header of another type", setHeader("x-amz-sns-message-type", "SubscriptionConfirmation"), ReasonClaimMismatch},
		{"no header of the type", setHeader("x-amz-sns-message-type"), ""},
		{"a member that is not signed", replace(`{"Type"`, `{"X":"y","Type"`), ""},
		{"no certificate", replace(`SigningCertURL`, `X`), ReasonKeySourceRefused},
		{"too deep", replace(`{"Type"`, `{"X":`+strings.Repeat("[", 40)+strings.Repeat("]", 40)+`,"Type"`), ReasonBodyUnparsable},
		{"a form", func(_ *Verifier, r *Request) { r.Body = []byte("Type=Notification") }, ReasonBodyUnparsable},
		{"a member moved into the one before", replace(`7bf324", "TopicArn"`, `7bf324\nSubject\nMy First Message", "X":"", "TopicArn"`), ReasonBodyUnparsable},
	}
	for _, member := range []string{
		`"MessageId": "22`, `"TopicArn": "arn`, `"Subject": "M`, `"Message": "H`, `"Timestamp": "2`,
	} {
		changed := member[:len(member)-1] + string(member[len(member)-1]+1)
		changes = append(changes, change{member, replace(member, changed), ReasonSignatureMismatch})
	}
	for _, url := range []string{
		"http://sns.us-west-2.amazonaws.com/a.pem", "https://sns.us-west-2.amazonaws.com.evil.example/a.pem",
		"https://evil.example/sns.us-west-2.amazonaws.com/a.pem", "https://sns.us-west-2.amazonaws.com@evil.example/a.pem",
		"https://sns.us-west-2.amazonaws.com:443/a.pem", "https://sns.us-west-2.amazonaws.com/a.cer?x.pem", "https://sns.us-west-2.amazonaws.com/a.cer",
		"https://sns.us-west-2.amazonaws.com", "https://sns.us.west.amazonaws.com/a.pem", "https://xsns.us-west-2.amazonaws.com/a.pem",
		"https://sns.us-west-2.amazonaws.com\\\\.evil.example/a.pem", "HTTPS://sns.us-west-2.amazonaws.com/a.pem", "",
	} {
		to := func(v *Verifier, r *Request) {
			replace("https://sns.us-west-2.amazonaws.com/SimpleNotificationService-test.pem", url)(v, r)
			replace(`"Message"`, `"X"`)(v, r) // decided before anything else
		}
		changes = append(changes, change{url, to, ReasonKeySourceRefused})
	}
	judgeChanges(t, "aws-sns/v2-notification", "", changes)
	judgeChanges(t, "aws-sns/subscription", "", []change{
		{"the token", replace(`"Token": "2`, `"Token": "3`), ReasonSignatureMismatch},
		{"the URL", replace(`ConfirmSub`, `Confirmsub`), ReasonSignatureMismatch},
		{"the type", replace(`"SubscriptionConfirmation"`, `"UnsubscribeConfirmation"`), ReasonSignatureMismatch},
	})
}

func TestSNSDemands(t *testing.T) {
	v1 := vectorNamed(t, "aws-sns/v1-notification")
	ver, err := v1.verifier(compile(t, `{"algo":"code:sns","min_signature_version":2}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ver.Verify(v1.request(t)); reasonOf(err) != ReasonAlgorithmRefused {
		t.Errorf("version 1 where 2 is demanded: %v", err)
	}
	ver.Scheme = compile(t, `{"algo":"code:sns","params":["topic_arn"]}`)
	ver.Params = nil
	if err := ver.Check(); err == nil {
		t.Error("a topic that is demanded and not given")
	}
	if _, err := ver.Verify(v1.request(t)); reasonOf(err) != ReasonPrecondition {
		t.Errorf("a topic that is demanded and not given: %v", err)
	}
}

func TestContentfulCovers(t *testing.T) {
	const mismatch = ReasonSignatureMismatch
	judgeChanges(t, "contentful/valid", "", []change{
		{"the method", func(_ *Verifier, r *Request) { r.Method = "PUT" }, mismatch},
		{"no method", func(_ *Verifier, r *Request) { r.Method = "" }, ReasonHeaderMissing},
		{"the path", setURL("https://hooks.example.com/api/v1/resources/2"), mismatch},
		{"a query", setURL("https://hooks.example.com/api/v1/resources/1?a=b"), mismatch},
		{"the host", setURL("https://example.com/api/v1/resources/1"), ""},
		{"the body", replace("e1", "e2"), mismatch},
		{"no body", func(_ *Verifier, r *Request) { r.Body = nil }, mismatch},
		{"a listed header", setHeader("authorization", "Bearer TOKEM"), mismatch},
		{"the topic", setHeader("x-contentful-topic", "ContentManagement.Entry.unpublish"), mismatch},
		{"the time", setHeader("x-contentful-timestamp", "1700000000001"), mismatch},
		{"a listed header twice", setHeader("authorization", "Bearer TOKEN", "Bearer TOKEN"), ReasonHeaderDuplicated},
		{"a listed header empty", setHeader("authorization", ""), ReasonHeaderMissing},
		{"a header that is not listed", setHeader("x-other", "a"), ""},
		{"a value that may hold the next", setHeader("authorization", "Bearer TOKEN;x-contentful-topic:a"), ReasonSignatureMalformed},
	})
	for path, want := range map[string]string{"/a b/c?d=e&f=/'": "/a%20b/c?d%253De%2526f%253D%252F'", "/a%20b": "/a%2520b", "/ü?": "/%C3%BC?", "/a;b,c": "/a;b,c"} {
		if got := escapedAgain(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// Receivers with the sender's toolkit know the path escaped once more, and no other.
func TestContentfulSignsThePathAsItsToolkit(t *testing.T) {
	v := &Verifier{Scheme: compile(t, `{"algo":"code:contentful"}`), Keys: oneKey(t), URL: "https://x/in", Now: at(t0)}
	h, err := v.Sign(Request{Method: "POST", URL: "/in?q=1&r=a/b", Body: []byte("{}")}, SignOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := hexMAC(sha256.New, "POST\n/in?q%253D1%2526r%253Da%252Fb\n"+
		"x-contentful-signed-headers:x-contentful-signed-headers,x-contentful-timestamp;x-contentful-timestamp:1760000000000\n{}")
	if got, _, _ := headerValue(h, contentfulSignature); got != want {
		t.Errorf("got %s, want %s of %v", got, want, h)
	}
}

func TestHook0Covers(t *testing.T) {
	const (
		mismatch = ReasonSignatureMismatch
		v0       = "v0=d17d66b66fca89390c5b967c45e8928fc732db07a0aabe8167b1e98213081ffe"
		v1       = "v1=19a6fb8f6581715b241a93af02a58611c3b0ac7b747a8d2a5b120ee418d0c347"
		h        = "h=x-event-id x-delivery-id"
	)
	zero := strings.Repeat("0", 64)
	signature := func(items ...string) func(*Verifier, *Request) {
		return setHeader("X-Hook0-Signature", strings.Join(items, ","))
	}
	judgeChanges(t, "hook0/a-header-scheme-signature-verifies", "", []change{
		{"the time", signature("t=1800000001", h, v1), mismatch},
		{"the names", signature("t=1800000000", "h=x-event-id", v1), mismatch},
		{"no names", signature("t=1800000000", v1), mismatch},
		{"a name twice", signature("t=1800000000", h+" x-event-id", v1), ReasonSignatureMalformed},
		{"the body", replace("created", "deleted"), mismatch},
		{"a listed header", setHeader("x-event-id", "evt-2"), mismatch},
		{"a listed header missing", setHeader("x-event-id"), ReasonHeaderMissing},
		{"a listed header twice", setHeader("X-Event-Id", "evt-1"), ReasonHeaderDuplicated},
		{"a wrong v1 beside v0", signature("t=1800000000", h, "v1="+zero, v0), mismatch},
		{"a wrong v0 beside v1", signature("t=1800000000", h, v1, "v0="+zero), ""},
		{"the right one of two", signature("t=1800000000", h, "v1="+zero, v1), ""},
		{"blanks in the list", signature("t=1800000000 ", " "+h, " "+v1), ""},
		{"two lines", setHeader("X-Hook0-Signature", "t=1800000000,"+h, v1), ""},
		{"v1 called v0", signature("t=1800000000", h, "v0"+v1[2:]), mismatch},
	})
	judgeChanges(t, "hook0/a-body-scheme-signature-verifies", "", []change{
		{"two times, the first empty", signature("t=", "t=1800000000", v0), ReasonHeaderDuplicated},
		{"a dot in a name", signature("t=1800000000", "h=x-event-id.evt-1", v1), ReasonSignatureMalformed},
	})
	// A dot moved from one value to the next gives the same text.
	s := compile(t, `{"algo":"code:hook0","id":{"from":"header:X-Event-Id"}}`)
	k, _ := NewKey("k1", []byte(testSecret), SecretSpec{})
	ver := Verifier{Scheme: s, Keys: testSet(t, k), Now: at(time.Unix(1800000000, 0))}
	head := "1800000000.x-event-id x-type.evt-1.user.created."
	r := Request{Header: http.Header{
		"X-Event-Id": {"evt-1"}, "X-Type": {"user.created"},
		"X-Hook0-Signature": {"t=1800000000,h=x-event-id x-type,v1=" + hex.EncodeToString(k.mac(hashSHA256, []byte(head), nil))},
	}}
	if env, err := ver.Verify(r); err != nil || !env.IDSigned {
		t.Errorf("%+v, %v", env, err)
	}
	r.Header["X-Event-Id"], r.Header["X-Type"] = []string{"evt-1.user"}, []string{"created"}
	if env, err := ver.Verify(r); err != nil || env.IDSigned {
		t.Errorf("an id that may have taken a part of its neighbour is called signed: %+v, %v", env, err)
	}
	// Nor is one behind a value with a dot, which may have been its first part.
	head = "1800000000.x-type x-event-id.user.created.evt-1."
	r.Header["X-Hook0-Signature"] = []string{"t=1800000000,h=x-type x-event-id,v1=" + hex.EncodeToString(k.mac(1, []byte(head), nil))}
	r.Header["X-Event-Id"], r.Header["X-Type"] = []string{"evt-1"}, []string{"user.created"}
	if env, err := ver.Verify(r); err != nil || env.IDSigned {
		t.Errorf("an id behind a value with a dot is called signed: %+v, %v", env, err)
	}
}
