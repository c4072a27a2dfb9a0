package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/hooklatch/hooklatch/verify"
)

// writeRecipe writes a recipe as YAML: one line a field, lists of mappings one line
// an entry. parseRecipe reads it back equal.
func writeRecipe(w io.Writer, recipe verify.Recipe) error {
	text, err := json.Marshal(recipe)
	if err != nil {
		return err
	}
	fields, err := ordered(text)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, f := range fields.([]member) {
		list, ok := f.value.([]any)
		if _, mappings := first(list).([]member); ok && mappings {
			fmt.Fprintf(&b, "%s:\n", f.name)
			for _, entry := range list {
				fmt.Fprintf(&b, "  - %s\n", flow(entry))
			}
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n", f.name, flow(f.value))
	}
	_, err = io.WriteString(w, b.String())
	return err
}

func first(list []any) any {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

// member is one line of a JSON object, which a map would lose the order of.
type member struct {
	name  string
	value any
}

// ordered decodes JSON into []member, []any, string, json.Number, bool and nil.
func ordered(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return orderedValue(d)
}

func orderedValue(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		members := []member{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			value, err := orderedValue(d)
			if err != nil {
				return nil, err
			}
			members = append(members, member{name.(string), value})
		}
		_, err = d.Token()
		return members, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			value, err := orderedValue(d)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err = d.Token()
		return list, err
	}
	return token, nil
}

// flow writes a value on one line.
func flow(value any) string {
	switch v := value.(type) {
	case []member:
		var all []string
		for _, m := range v {
			all = append(all, m.name+": "+flow(m.value))
		}
		return "{" + strings.Join(all, ", ") + "}"
	case []any:
		var all []string
		for _, entry := range v {
			all = append(all, flow(entry))
		}
		return "[" + strings.Join(all, ", ") + "]"
	case string:
		return yamlText(v)
	case nil:
		return "null"
	}
	return fmt.Sprint(value)
}

// bareText is what YAML takes for a text without quotes, wherever it stands.
var bareText = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*([ ._/-][A-Za-z0-9]+)*$`)

// yamlText writes a text so that YAML reads it back: a text of JSON is one of YAML.
func yamlText(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf":
	default:
		if bareText.MatchString(s) {
			return s
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return `""` // a text always encodes
	}
	return strings.TrimSuffix(b.String(), "\n")
}
