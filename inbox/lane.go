package inbox

import (
	"crypto/sha256"
	"encoding/binary"
)

// laneOf names the lane of a delivery: what stands in it is ordered, at each
// destination, by revision. nil: the delivery has no resource or no revision, and
// is never ordered. A hash keeps the row of a forward small however long the
// resource's id is; the lengths keep two resources apart whose names run together.
func laneOf(d *Delivery) []byte {
	if d.ResourceID == "" || d.Revision == nil {
		return nil
	}
	var text []byte
	for _, part := range []string{d.Tenant, d.Source, d.ResourceType, d.ResourceID} {
		text = binary.AppendUvarint(text, uint64(len(part)))
		text = append(text, part...)
	}
	lane := sha256.Sum256(text)
	return lane[:]
}
