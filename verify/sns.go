package verify

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
)

// SNS signs certain members of a JSON body, each as name, newline, value, newline, by
// RSA: with SHA-1 in version 1, with SHA-256 in version 2. The certificate that it
// names by URL is not fetched: keys are pinned, and a URL of another host is refused
// before anything else is done.
//
// Any account of the cloud gets a valid signature for a topic of its own. So the
// topic is to be pinned too, as the parameter topic_arn.
//
// Source: github.com/aws/aws-js-sns-message-validator, index.js.
var sns = coder{
	algo:    "rsa-pkcs1-sha256",
	fields:  []string{"min_signature_version"},
	params:  []string{snsTopic},
	compile: compileSNS,
	covers: func(_ *builder, v *place) bool {
		return v.kind == placeJSON && len(v.path) == 1 && slices.Contains(snsAlways, v.path[0])
	},
	signs: []string{"id", "topic", "time", "message"}, part: "the message, its id, time, topic and type",
	open: func(c *check) *Error { c.coded = &snsRequest{}; return nil },
	sign: signSNS,
}

const (
	snsTopic = "topic_arn"
	snsType  = "x-amz-sns-message-type"
)

// The members that are signed, in their order; Subject only where there is one.
var (
	snsNotification = []string{"Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"}
	snsConfirmation = []string{"Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"}
	snsAlways       = []string{"Message", "MessageId", "Timestamp", "TopicArn", "Type"}
	snsMembers      = []string{
		"Type", "SigningCertURL", "SignatureVersion", "Signature",
		"Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn",
	}
)

var snsHost = regexp.MustCompile(`^sns\.[a-zA-Z0-9-]{3,}\.amazonaws\.com(\.cn)?$`)

func compileSNS(b *builder) error {
	if v := b.r.MinSignatureVersion; v < 0 || v > 2 {
		return wrongf("min_signature_version", "%d is neither 1 nor 2", v)
	}
	b.p.sha1 = b.r.MinSignatureVersion < 2
	return b.signatureOf(&SignatureRecipe{In: "json", Name: "Signature", Encoding: "base64"})
}

type snsRequest struct {
	members map[string]string
	algo    algorithm
	text    []byte
	sig     []byte
}

func (r *snsRequest) read(c *check) *Error {
	if err := r.scan(c); err != nil {
		return err
	}
	cert, there := r.members["SigningCertURL"]
	if there && !snsCertificate(cert) {
		return c.fail(ReasonKeySourceRefused, "json:SigningCertURL")
	}
	if r.members["Signature"] == "" {
		return c.fail(ReasonSignatureMissing, "json:Signature")
	}
	if !there {
		return c.fail(ReasonKeySourceRefused, "json:SigningCertURL")
	}
	switch v := r.members["SignatureVersion"]; {
	case v == "1" && c.p.recipe.MinSignatureVersion < 2:
		r.algo = algorithms["rsa-pkcs1-sha1"]
	case v == "2":
		r.algo = c.p.algo
	default:
		return c.fail(ReasonAlgorithmRefused, "json:SignatureVersion")
	}
	if !c.p.signature.spelled(r.members["Signature"]) {
		return c.malformed()
	}
	r.sig = c.p.signature.decode(nil, r.members["Signature"])
	return r.render(c)
}

func (r *snsRequest) scan(c *check) *Error {
	targets := make([]jsonTarget, len(snsMembers))
	for i, name := range snsMembers {
		targets[i].path = []string{name}
	}
	jsonScanSigned(c.r.Body, targets)
	r.members = make(map[string]string, len(targets))
	for i := range targets {
		switch t := &targets[i]; {
		case t.err != nil, t.kind == jsonNumber, t.kind == jsonBool, t.kind == jsonOther:
			return c.fail(ReasonBodyUnparsable, "json:"+t.path[0])
		case t.kind == jsonString:
			r.members[t.path[0]] = t.found
		}
	}
	return nil
}

// render makes the signed text. A line break is let stand in the message only:
// elsewhere the end of one message could be read as members of another.
func (r *snsRequest) render(c *check) *Error {
	signed := snsNotification
	switch r.members["Type"] {
	case "Notification":
	case "SubscriptionConfirmation", "UnsubscribeConfirmation":
		signed = snsConfirmation
	default:
		return c.fail(ReasonBodyUnparsable, "json:Type")
	}
	for _, name := range signed {
		value, there := r.members[name]
		switch {
		case !there && name == "Subject":
			continue
		case !there:
			return c.fail(ReasonHeaderMissing, "json:"+name)
		case name != "Message" && strings.Contains(value, "\n"):
			return c.fail(ReasonBodyUnparsable, "json:"+name)
		}
		r.text = append(r.text, name+"\n"+value+"\n"...)
	}
	return nil
}

// snsCertificate says whether a certificate may be where the URL says. The text is
// compared, not parsed: two parsers do not agree on what the host of a URL is.
func snsCertificate(url string) bool {
	rest, ok := strings.CutPrefix(url, "https://")
	host, path, slash := strings.Cut(rest, "/")
	return ok && slash && snsHost.MatchString(host) && strings.HasSuffix(path, ".pem") && !strings.ContainsAny(path, "?#\\")
}

func (r *snsRequest) fits(_ *check, k *Key) bool {
	return k.Secret.data().public.verify(&r.algo, r.text, r.sig)
}

// claims holds the topic against the pinned one, and the type against the header that
// repeats it and is not signed: by a header alone a notification would be taken for a
// confirmation, whose URL is one to visit and would not be signed either.
func (r *snsRequest) claims(c *check) *Error {
	pinned := c.v.Params[snsTopic]
	kind, there, err := headerValue(c.r.Header, snsType)
	switch {
	case err != nil:
		return c.fail(ReasonHeaderDuplicated, snsType)
	case there && kind != r.members["Type"]:
		return c.fail(ReasonClaimMismatch, snsType)
	case pinned == "" && slices.Contains(c.p.recipe.Params, snsTopic):
		return c.fail(ReasonPrecondition, "param:"+snsTopic)
	case pinned != "" && pinned != r.members["TopicArn"]:
		return c.fail(ReasonClaimMismatch, "json:TopicArn")
	}
	return nil
}

// signSNS adds to a message what it lacks, and the signature.
func signSNS(c *check, key *Key, o SignOptions) (Request, error) {
	r := &snsRequest{}
	if err := r.scan(c); err != nil {
		return Request{}, err
	}
	if _, there := r.members["Signature"]; there {
		return Request{}, c.fail(ReasonHeaderDuplicated, "json:Signature")
	}
	for _, m := range []pair{
		{"Type", "Notification"},
		{"MessageId", o.DeliveryID},
		{"TopicArn", c.v.Params[snsTopic]},
		{"Timestamp", c.now.UTC().Format("2006-01-02T15:04:05.000Z")},
		{"SignatureVersion", "2"},
		{"SigningCertURL", "https://sns.us-east-1.amazonaws.com/SimpleNotificationService.pem"},
	} {
		if _, there := r.members[m.name]; !there && m.value != "" {
			r.members[m.name] = m.value
			if err := c.r.insert(snsMember(m.name), m.value); err != nil {
				return Request{}, err
			}
		}
	}
	if r.algo = c.p.algo; r.members["SignatureVersion"] == "1" {
		r.algo = algorithms["rsa-pkcs1-sha1"]
	}
	if err := r.render(c); err != nil {
		return Request{}, err
	}
	sig, err := key.Secret.data().public.sign(&r.algo, r.text)
	if err != nil {
		return Request{}, err
	}
	if err := c.r.insert(snsMember("Signature"), base64.StdEncoding.EncodeToString(sig)); err != nil {
		return Request{}, err
	}
	return c.r, nil
}

func snsMember(name string) *place {
	return &place{kind: placeJSON, name: name, path: []string{name}}
}
