package main

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// goccy parses; the way from its nodes into our structs is ours, since its own
// stops at the first problem and loses the position of values that decode
// themselves.

// positions are the places of values in the file, by path:
// sources.billing.keys[0].id. What is not in it was not given.
type positions map[string]*token.Token

// maxDepth bounds nesting, so that an anchor inside itself ends.
const maxDepth = 32

type decoder struct {
	at       positions
	anchors  map[string]ast.Node
	problems []problem
	depth    int
	// bare is set once a secret was found in clear text: then no excerpt is shown,
	// it might hold it.
	bare bool
}

func (d *decoder) problem(n ast.Node, path, format string, args ...any) {
	d.problems = append(d.problems, problem{Path: path, Message: fmt.Sprintf(format, args...), token: beginOf(n)})
}

// beginOf is where a node begins. A block mapping begins with its first key; the
// parser has the colon behind it.
func beginOf(n ast.Node) *token.Token {
	switch m := n.(type) {
	case *ast.MappingNode:
		if !m.IsFlowStyle && len(m.Values) > 0 {
			return m.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		return m.Key.GetToken()
	}
	return n.GetToken()
}

func newDecoder() *decoder {
	return &decoder{at: positions{}, anchors: map[string]ast.Node{}}
}

// document decodes the only document of text into c.
func (d *decoder) document(text []byte, c *config) {
	if n := d.root(text, "configuration"); n != nil {
		d.decode(n, reflect.ValueOf(c).Elem(), "")
	}
	if d.bare {
		for i := range d.problems {
			d.problems[i].hide = true
		}
	}
}

// root is the only document of text, nil where there is none or another beside it.
func (d *decoder) root(text []byte, holds string) ast.Node {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		d.problems = append(d.problems, syntaxProblem(err))
		return nil
	}
	var docs []*ast.DocumentNode
	for _, doc := range file.Docs {
		if doc.Body != nil {
			docs = append(docs, doc)
		}
	}
	switch len(docs) {
	case 0:
		d.problems = append(d.problems, problem{Message: "the file is empty"})
		return nil
	case 1:
		return docs[0].Body
	}
	d.problem(docs[1].Body, "", "a second document: one file holds one %s", holds)
	return nil
}

func syntaxProblem(err error) problem {
	if e, ok := err.(yaml.Error); ok {
		return problem{Message: e.GetMessage(), token: e.GetToken()}
	}
	return problem{Message: err.Error()}
}

// nodeDecoder is a value that more than one kind of node can stand for.
type nodeDecoder interface {
	decodeNode(d *decoder, n ast.Node, path string)
}

// decode sets v from n and notes where it stands.
func (d *decoder) decode(n ast.Node, v reflect.Value, path string) {
	if d.depth++; d.depth > maxDepth {
		d.problem(n, path, "nested too deeply")
		d.depth--
		return
	}
	defer func() { d.depth-- }()
	n, ok := d.resolve(n, path)
	if !ok {
		return
	}
	if _, null := n.(*ast.NullNode); null {
		return
	}
	if d.at[path] == nil {
		d.at[path] = beginOf(n)
	}
	if own, ok := v.Addr().Interface().(nodeDecoder); ok {
		own.decodeNode(d, n, path)
		return
	}
	if own, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if text, ok := d.text(n, path); ok {
			if err := own.UnmarshalText([]byte(text)); err != nil {
				if v.Type() == reflect.TypeFor[time.Time]() {
					err = fmt.Errorf("%q is no RFC 3339 time such as 2026-12-31T00:00:00Z", text)
				}
				d.problem(n, path, "%v", err)
			}
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.object(n, v, path)
	case reflect.Map:
		d.mapping(n, v, path)
	case reflect.Slice:
		d.list(n, v, path)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decode(n, v.Elem(), path)
	case reflect.String:
		if text, ok := d.text(n, path); ok {
			v.SetString(text)
		}
	case reflect.Bool:
		text, ok := d.text(n, path)
		if !ok {
			return
		}
		if text != "true" && text != "false" {
			d.problem(n, path, "%q is neither true nor false", text)
			return
		}
		v.SetBool(text == "true")
	case reflect.Int:
		text, ok := d.text(n, path)
		if !ok {
			return
		}
		i, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			d.problem(n, path, "%q is no whole number", text)
			return
		}
		v.SetInt(i)
	}
}

// resolve follows anchors and aliases.
func (d *decoder) resolve(n ast.Node, path string) (ast.Node, bool) {
	for range maxDepth {
		switch node := n.(type) {
		case *ast.AnchorNode:
			d.anchors[node.Name.GetToken().Value] = node.Value
			n = node.Value
		case *ast.AliasNode:
			target, ok := d.anchors[node.Value.GetToken().Value]
			if !ok {
				d.problem(n, path, "no anchor &%s stands before this alias", node.Value.GetToken().Value)
				return nil, false
			}
			n = target
		case *ast.TagNode:
			d.problem(n, path, "tags are not read here")
			return nil, false
		case nil:
			return nil, false
		default:
			return n, true
		}
	}
	d.problem(n, path, "nested too deeply")
	return nil, false
}

// text returns the scalar's text as written: an id of digits stays what it is.
func (d *decoder) text(n ast.Node, path string) (string, bool) {
	switch node := n.(type) {
	case *ast.StringNode:
		return node.Value, true
	case *ast.LiteralNode:
		return node.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	d.problem(n, path, "%s where a single value belongs", kindOf(n))
	return "", false
}

func kindOf(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	}
	return "a single value"
}

// entry is one line of a mapping.
type entry struct {
	key   string
	at    ast.Node
	value ast.Node
}

// entries lists a mapping in its order; what is merged in comes last and only
// where the mapping has no line of its own.
func (d *decoder) entries(n ast.Node, path string) ([]entry, bool) {
	m, ok := n.(ast.MapNode)
	if !ok {
		d.problem(n, path, "%s where a mapping belongs", kindOf(n))
		return nil, false
	}
	var own, merged []entry
	for it := m.MapRange(); it.Next(); {
		if _, merge := it.Key().(*ast.MergeKeyNode); merge {
			more, ok := d.merge(it.Value(), path)
			if !ok {
				return nil, false
			}
			merged = append(merged, more...)
			continue
		}
		key, ok := d.resolve(it.Key(), path)
		if !ok {
			continue
		}
		text, ok := d.text(key, path)
		if !ok {
			continue
		}
		own = append(own, entry{text, it.Key(), it.Value()})
	}
	for _, e := range merged {
		if !slices.ContainsFunc(own, func(o entry) bool { return o.key == e.key }) {
			own = append(own, e)
		}
	}
	return own, true
}

func (d *decoder) merge(n ast.Node, path string) ([]entry, bool) {
	if d.depth++; d.depth > maxDepth {
		d.problem(n, path, "nested too deeply")
		d.depth--
		return nil, false
	}
	defer func() { d.depth-- }()
	n, ok := d.resolve(n, path)
	if !ok {
		return nil, false
	}
	return d.entries(n, path)
}

// mark notes the place of a mapping by its name: what is missing in it has no
// place of its own.
func (d *decoder) mark(e entry, path string) {
	if _, mapping := e.value.(ast.MapNode); mapping {
		d.at[path] = e.at.GetToken()
	}
}

func (d *decoder) object(n ast.Node, v reflect.Value, path string) {
	entries, ok := d.entries(n, path)
	if !ok {
		return
	}
	fields, later := map[string]int{}, []string(nil)
	var names []string
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if list, ok := f.Tag.Lookup("later"); ok {
			later = strings.Split(list, ",")
		}
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			fields[name] = i
			names = append(names, name)
		}
	}
	for _, e := range entries {
		at := join(path, e.key)
		i, known := fields[e.key]
		switch {
		case known:
			d.mark(e, at)
			d.decode(e.value, v.Field(i), at)
		case slices.Contains(later, e.key):
			d.problem(e.at, at, "%s is not in this version", e.key)
			d.problems[len(d.problems)-1].kind = laterField
		default:
			d.unknown(e, at, names)
		}
	}
}

// unknown complains about a name that is none of names.
func (d *decoder) unknown(e entry, at string, names []string) {
	if near := nearest(e.key, names); near != "" {
		d.problem(e.at, at, "unknown field %q, did you mean %s?", e.key, near)
	} else {
		d.problem(e.at, at, "unknown field %q", e.key)
	}
	d.problems[len(d.problems)-1].kind = unknownField
}

func (d *decoder) mapping(n ast.Node, v reflect.Value, path string) {
	entries, ok := d.entries(n, path)
	if !ok {
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, e := range entries {
		value := reflect.New(v.Type().Elem()).Elem()
		at := join(path, e.key)
		before := len(d.problems)
		d.mark(e, at)
		d.decode(e.value, value, at)
		if value.Kind() == reflect.Pointer && value.IsNil() {
			if len(d.problems) == before {
				d.problem(e.at, at, "%s is empty", e.key)
			}
			continue
		}
		v.SetMapIndex(reflect.ValueOf(e.key), value)
	}
}

func (d *decoder) list(n ast.Node, v reflect.Value, path string) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		d.problem(n, path, "%s where a list belongs", kindOf(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(list.Values), len(list.Values)))
	for i, value := range list.Values {
		d.decode(value, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
