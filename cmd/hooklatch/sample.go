package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// sampleType is the type of an event that nobody has sent.
const sampleType = "hooklatch.test"

// sample is a small event in the shape that a scheme reads.
type sample struct {
	header http.Header // what only the sender can know, beside what signing adds
	query  url.Values
	body   []byte
}

// sampleOf makes a request that the scheme can sign, with a delivery id and an event
// type where it looks for them.
func sampleOf(scheme verify.Scheme, id string, at time.Time) sample {
	recipe := scheme.Recipe()
	b := sampleBody{event: "evt_" + strings.TrimPrefix(id, "dlv_"), header: http.Header{}, query: url.Values{}, form: url.Values{}}
	if of := codeSample(recipe.Algo, b.event); of != nil {
		return *of
	}
	if recipe.ID != nil {
		b.place(recipe.ID.From[0], b.event, "")
	}
	if recipe.EventType != nil {
		b.place(recipe.EventType.From[0], sampleType, sampleType)
	}
	template := recipe.Template
	switch t := recipe.Timestamp; {
	case t == nil:
	case recipe.Signature.In == "json" && strings.Contains(template, "{"+t.From+"}"):
		template = strings.ReplaceAll(template, "{"+t.From+"}", "") // signing puts it there
	default:
		b.place(t.From, sampleTime(t.Format, at), "")
	}
	if recipe.Signature.In == "json" {
		b.place(beside("json:"+recipe.Signature.Name), "hooklatch", "") // signing makes no lists
	}
	b.tokens(template, "example") // last: what is there already stays
	b.ours(at)
	for _, name := range signedHeaders(recipe) {
		b.header.Del(name)
	}
	s := sample{header: b.header, query: b.query}
	signatureInForm := recipe.Signature.In == "form"
	if len(b.form) > 0 || signatureInForm || strings.Contains(recipe.Template, "{form_sorted}") {
		// Travis and others put the JSON into a field.
		for name := range b.form {
			b.form.Set(name, string(b.json()))
		}
		if len(b.form) == 0 {
			b.form = url.Values{"event_id": {b.event}, "type": {sampleType}}
		}
		s.body = []byte(b.form.Encode())
		s.header.Set("Content-Type", "application/x-www-form-urlencoded")
		return s
	}
	s.body = b.json()
	s.header.Set("Content-Type", "application/json")
	return s
}

// sampleBody collects what a scheme looks for.
type sampleBody struct {
	event  string
	root   any // the JSON
	header http.Header
	query  url.Values
	form   url.Values
}

// beside is a place next to one in JSON.
func beside(from string) string {
	return from[:strings.LastIndexAny(from, "./:")+1] + "sent_by"
}

var templateToken = regexp.MustCompile(`\{([a-z]+):([^}]*)\}`)

// tokens gives each value that a template names.
func (b *sampleBody) tokens(template, value string) {
	for _, token := range templateToken.FindAllStringSubmatch(template, -1) {
		b.place(token[1]+":"+token[2], value, value)
	}
}

// place puts a value where the scheme looks for it; head is that of a header, where
// signing does not put one there itself.
func (b *sampleBody) place(from, value, head string) {
	if strings.Contains(from, "{") {
		b.tokens(from, value)
		return
	}
	kind, name, _ := strings.Cut(from, ":")
	switch kind {
	case "header":
		if head != "" {
			b.header.Set(name, head)
		}
	case "query":
		b.query.Set(name, value)
	case "form":
		b.form.Set(name, value)
	case "json":
		b.root = put(b.root, jsonPath(from), value)
	}
}

// put sets a value in JSON; names that are numbers make lists.
func put(in any, path []string, value string) any {
	if len(path) == 0 {
		if in != nil {
			return in // something stands below it already
		}
		return value
	}
	if n, err := strconv.Atoi(path[0]); err == nil && n < 8 {
		list, _ := in.([]any)
		for len(list) <= n {
			list = append(list, nil)
		}
		list[n] = put(list[n], path[1:], value)
		return list
	}
	object, ok := in.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	object[path[0]] = put(object[path[0]], path[1:], value)
	return object
}

// ours adds what other schemes look for, as far as there is room.
func (b *sampleBody) ours(at time.Time) {
	if b.root == nil {
		b.root = map[string]any{}
	}
	root := b.root
	if list, ok := root.([]any); ok {
		root = list[0] // a list of events
	}
	object, ok := root.(map[string]any)
	if !ok {
		return
	}
	for name, value := range map[string]string{
		"id": b.event, "event_id": b.event, "type": sampleType, "sent_at": at.UTC().Format(time.RFC3339),
	} {
		if object[name] == nil {
			object[name] = value
		}
	}
}

func (b *sampleBody) json() []byte {
	text, err := json.Marshal(b.root)
	if err != nil {
		return []byte("{}") // nothing in it cannot be written
	}
	return text
}

// signedHeaders are those that signing adds beside the signature.
func signedHeaders(recipe verify.Recipe) (names []string) {
	var places []string
	if recipe.Timestamp != nil {
		places = append(places, recipe.Timestamp.From)
	}
	if recipe.KeyID != nil {
		places = append(places, recipe.KeyID.From...)
	}
	if recipe.ID != nil {
		places = append(places, recipe.ID.From[0])
	}
	for _, from := range places {
		if name, ok := strings.CutPrefix(from, "header:"); ok {
			names = append(names, name)
		}
	}
	return names
}

// contentType is what a body that somebody gives looks like; else that of the sample.
func contentType(body []byte, of sample) string {
	switch {
	case json.Valid(body):
		return "application/json"
	case bytes.IndexByte(body, '=') > 0 && !bytes.ContainsAny(body, " \r\n\t<{["):
		return "application/x-www-form-urlencoded"
	}
	return of.header.Get("Content-Type")
}

func sampleTime(format string, at time.Time) string {
	switch format {
	case "unix-ms":
		return strconv.FormatInt(at.UnixMilli(), 10)
	case "rfc3339":
		return at.UTC().Format(time.RFC3339)
	case "http-date":
		return at.UTC().Format(http.TimeFormat)
	}
	return strconv.FormatInt(at.Unix(), 10)
}

// codeSample is the body of schemes that look into it in a way of their own.
func codeSample(algo, event string) *sample {
	text, kind := "", "application/json"
	switch algo {
	case "code:adyen-item":
		text = `{"live":"false","notificationItems":[{"NotificationRequestItem":{"pspReference":"` + event +
			`","merchantAccountCode":"example","amount":{"currency":"EUR","value":1000},"eventCode":"AUTHORISATION","success":"true","additionalData":{}}}]}`
	case "code:sns":
		text = `{"MessageId":"` + event + `","Message":"` + sampleType + `"}` // signing adds the rest
	case "code:braintree":
		payload := base64.StdEncoding.EncodeToString([]byte("<notification><id>" + event + "</id><kind>check</kind></notification>"))
		text, kind = url.Values{"bt_payload": {payload}}.Encode(), "application/x-www-form-urlencoded"
	default:
		return nil
	}
	return &sample{header: http.Header{"Content-Type": {kind}}, query: url.Values{}, body: []byte(text)}
}
