package proxy

import (
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/verify"
)

const (
	maxDeliveryID = 256 // characters
	maxMeta       = 512 // bytes of any other id or type: an index must hold them
)

// delivery reads the metadata of a verified request. It cannot fail: what was
// rightly signed is not turned away for its labels.
func (s *source) delivery(req verify.Request, env *verify.Envelope, hash [32]byte) inbox.Delivery {
	m := metadata{req: req}
	m.note(env.MetaError)
	d := inbox.Delivery{
		Tenant:     s.tenant,
		Source:     s.name,
		DeliveryID: env.DeliveryID,
		Body:       req.Body,
		BodyHash:   hash,
		BodySize:   len(req.Body),
		Method:     req.Method,
		Header:     req.Header,
		Scheme:     env.Scheme,
		KeyID:      env.KeyID,
	}
	f := &s.fields
	d.EventID = m.text("event id", f.eventID)
	d.EventType = env.EventType
	if !f.eventType.IsZero() {
		d.EventType = m.text("event type", f.eventType)
	} else if len(d.EventType) > maxMeta {
		d.EventType = ""
		m.note("event type is too long")
	}
	d.ResourceType = m.text("resource type", f.resourceType)
	d.ResourceID = m.text("resource id", f.resourceID)
	d.Revision = m.revision(f.revision)
	d.Deleted = m.flag("deleted", f.deleted)

	if !s.verifier.Scheme.HasDeliveryID() {
		d.DeliveryID = d.EventID
		if !validDeliveryID(d.DeliveryID) {
			d.DeliveryID = ""
			m.note("event id is no delivery id")
		}
	}
	if d.DeliveryID == "" {
		// The id stood in the body and could not be read.
		d.DeliveryID = "body:" + hex.EncodeToString(hash[:])
	}
	d.MetaError = strings.Join(m.errors, "; ")
	d.Forwards = s.routing.forwards(d.EventType)
	return d
}

// checkEventIDHeader demands the id that takes the place of the scheme's, where
// it stands in a header and can be judged before the body is read.
func (s *source) checkEventIDHeader(req verify.Request) error {
	name := s.fields.idHeader
	if name == "" {
		return nil
	}
	refuse := func(r verify.Reason) error {
		return &verify.Error{Reason: r, Scheme: s.verifier.Scheme.Name(), Field: name}
	}
	id, ok, err := s.fields.eventID.Read(req)
	switch {
	case err != nil:
		return refuse(verify.ReasonHeaderDuplicated)
	case !ok || id == "":
		return refuse(verify.ReasonHeaderMissing)
	case !validDeliveryID(id):
		return refuse(verify.ReasonDeliveryIDInvalid)
	}
	return nil
}

// validDeliveryID is the grammar of every delivery id. The prefix snap: belongs
// to backfilled snapshots.
func validDeliveryID(id string) bool {
	if id == "" || len(id) > maxDeliveryID || strings.HasPrefix(id, "snap:") {
		return false
	}
	for _, c := range []byte(id) {
		if c < '!' || c > '~' {
			return false
		}
	}
	return true
}

// metadata collects what could not be read.
type metadata struct {
	req    verify.Request
	errors []string
}

func (m *metadata) note(problem string) {
	if problem != "" {
		m.errors = append(m.errors, problem)
	}
}

// text reads a value. One that is too long is left out whole: a clipped id would
// be another id.
func (m *metadata) text(name string, f verify.Field) string {
	if f.IsZero() {
		return ""
	}
	value, ok, err := f.Read(m.req)
	switch {
	case err != nil:
		m.note(name + " cannot be read")
	case ok && len(value) > maxMeta:
		m.note(name + " is too long")
	case ok:
		return value
	}
	return ""
}

// revision reads a number between 0 and 2^63-1 in its one spelling; anything else
// means that the delivery has none.
func (m *metadata) revision(f verify.Field) *int64 {
	text := m.text("revision", f)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != text {
		m.note("revision is no whole number")
		return nil
	}
	return &n
}

func (m *metadata) flag(name string, f verify.Field) bool {
	switch m.text(name, f) {
	case "true":
		return true
	case "", "false":
		return false
	}
	m.note(name + " is neither true nor false")
	return false
}
