package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hooklatch/hooklatch/verify"
)

// defaultResource is where a resource stands in a body of which nothing else is known.
func defaultResource() (r resourceConfig) {
	for text, field := range map[string]*fieldConfig{
		"/resource/type": &r.Type, "/resource/id": &r.ID, "/resource/revision": &r.Revision, "/resource/deleted": &r.Deleted,
	} {
		f, err := verify.ParseField(text)
		if err == nil { // as these are written
			field.Field = f
		}
	}
	return r
}

// skipRevision sends revisions 1 and 3 of a new resource: the first sets where its
// order begins, and then one is missing.
func (d *delivery) skipRevision() ([]*exchange, error) {
	if d.to.source != "" && d.to.resource.Revision.IsZero() {
		return nil, usagef("resource: {type: …, id: …, revision: …} in the configuration", "send: source %s reads no revision", d.to.source)
	}
	id := strings.TrimPrefix(d.id, "dlv_")
	var all []*exchange
	for _, revision := range []string{"1", "3"} {
		next := *d
		if len(all) > 0 {
			next.id = newDeliveryID()
			next.sample()
		}
		if err := next.revise(id, revision); err != nil {
			return nil, err
		}
		x, err := next.sign()
		if err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	if !d.sampled && all[0].id == all[1].id {
		return nil, usagef("leave --body out", "send: the delivery id stands in the body: revisions of one body have one id")
	}
	return all, nil
}

// revise writes the resource and its revision where the receiver looks for them.
func (d *delivery) revise(id, revision string) error {
	places := d.to.resource
	if places.Revision.IsZero() {
		places = defaultResource()
	}
	d.header = d.header.Clone()
	var root any
	decoder := json.NewDecoder(bytes.NewReader(d.body)) // numbers stay as they are written
	decoder.UseNumber()
	if err := decoder.Decode(&root); err != nil {
		root = nil
	}
	object, isObject := root.(map[string]any)
	changed := false
	for _, p := range []struct {
		field verify.Field
		value any
	}{{places.Type.Field, sampleType}, {places.ID.Field, id}, {places.Revision.Field, json.Number(revision)}} {
		kind, name, _ := strings.Cut(p.field.String(), ":")
		path := jsonPath(p.field.String())
		switch {
		case p.field.IsZero():
		case kind == "header":
			d.header.Set(name, fmt.Sprint(p.value))
		case path == nil || !isObject || !set(object, path, p.value):
			return d.noPart("place for a revision: " + p.field.String() + " is in no JSON object")
		default:
			changed = true
		}
	}
	if !changed {
		return nil
	}
	text, err := json.Marshal(object)
	d.body = text
	return err
}

// set writes a value into JSON; false: something else than an object is in the way.
func set(object map[string]any, path []string, value any) bool {
	for ; len(path) > 1; path = path[1:] {
		if object[path[0]] == nil {
			object[path[0]] = map[string]any{}
		}
		next, ok := object[path[0]].(map[string]any)
		if !ok {
			return false
		}
		object = next
	}
	object[path[0]] = value
	return true
}

// jsonPath are the names on the way to a place in JSON; nil: it is none.
func jsonPath(place string) []string {
	name, ok := strings.CutPrefix(place, "json:")
	if !ok && !strings.HasPrefix(place, "/") {
		return nil
	}
	if rest, ok := strings.CutPrefix(name, "/"); ok {
		names := strings.Split(rest, "/")
		for i, name := range names {
			names[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		}
		return names
	}
	return strings.Split(name, ".")
}
