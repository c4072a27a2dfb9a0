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
	m := metadata{values: verify.ReadFields(req, s.fields.list[:]...)}
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
	d.EventID = m.text(fieldEventID)
	d.EventType = env.EventType
	if !s.fields.list[fieldEventType].IsZero() {
		d.EventType = m.text(fieldEventType)
	} else if len(d.EventType) > maxMeta {
		d.EventType = ""
		m.note("event type is too long")
	}
	d.ResourceType = m.text(fieldResourceType)
	d.ResourceID = m.text(fieldResourceID)
	d.Revision = m.revision(d.ResourceID != "" && !s.fields.list[fieldRevision].IsZero())
	d.Deleted = m.deleted()

	if !s.verifier().Scheme.HasDeliveryID() {
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
		return &verify.Error{Reason: r, Scheme: s.verifier().Scheme.Name(), Field: name}
	}
	id, ok, err := s.fields.list[fieldEventID].Read(req)
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

// The metadata of a delivery, and what it is called where it cannot be read.
const (
	fieldEventID = iota
	fieldEventType
	fieldResourceType
	fieldResourceID
	fieldRevision
	fieldDeleted
	fieldCount
)

var fieldNames = [fieldCount]string{"event id", "event type", "resource type", "resource id", "revision", "deleted"}

// metadata is what was read, and what could not be.
type metadata struct {
	values []verify.Value
	errors []string
}

func (m *metadata) note(problem string) {
	if problem != "" {
		m.errors = append(m.errors, problem)
	}
}

// text returns a value. One that is too long is left out whole: a clipped id would
// be another id.
func (m *metadata) text(field int) string {
	v := &m.values[field]
	switch {
	case v.Err != nil:
		m.note(fieldNames[field] + " cannot be read")
	case len(v.Text) > maxMeta:
		m.note(fieldNames[field] + " is too long")
	default:
		return v.Text
	}
	return ""
}

// revision takes a number between 0 and 2^63-1 in its one spelling; anything else
// means that the delivery has none. Digits in a JSON string are no number: who
// writes them so may write "10a" the next time. demanded: its absence is worth a word.
func (m *metadata) revision(demanded bool) *int64 {
	text, kind := m.text(fieldRevision), m.values[fieldRevision].Kind
	if kind == verify.KindAbsent || text == "" && kind == verify.KindText {
		if demanded && m.values[fieldRevision].Err == nil {
			m.note("revision is missing")
		}
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != text || kind == verify.KindString {
		m.note("revision is no whole number")
		return nil
	}
	return &n
}

func (m *metadata) deleted() bool {
	switch m.text(fieldDeleted) {
	case "true":
		return true
	case "", "false":
		return false
	}
	m.note("deleted is neither true nor false")
	return false
}
