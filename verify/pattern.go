package verify

import (
	"errors"
	"regexp"
	"regexp/syntax"
)

// pattern must match a whole value. The usual shape, one repeated character class,
// is a table: a regexp costs half as much as the MAC.
type pattern struct {
	re          *regexp.Regexp // nil: the table
	class       [128]bool
	least, most int
}

func compilePattern(s string) (*pattern, error) {
	if len(s) > 256 {
		return nil, errors.New("pattern is longer than 256 bytes")
	}
	tree, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if p := classPattern(tree); p != nil {
		return p, nil
	}
	re, err := regexp.Compile(`^(?:` + s + `)$`)
	if err != nil {
		return nil, err
	}
	return &pattern{re: re}, nil
}

func classPattern(tree *syntax.Regexp) *pattern {
	p := &pattern{least: tree.Min, most: tree.Max}
	switch tree.Op {
	case syntax.OpPlus:
		p.least, p.most = 1, -1
	case syntax.OpStar:
		p.least, p.most = 0, -1
	case syntax.OpRepeat:
	default:
		return nil
	}
	class := tree.Sub[0]
	if class.Op != syntax.OpCharClass || class.Flags&syntax.FoldCase != 0 {
		return nil
	}
	for i := 0; i+1 < len(class.Rune); i += 2 {
		for r := class.Rune[i]; r <= class.Rune[i+1] && r < 128; r++ {
			p.class[r] = true
		}
	}
	return p
}

func (p *pattern) match(s string) bool {
	if p.re != nil {
		return p.re.MatchString(s)
	}
	if len(s) < p.least || p.most >= 0 && len(s) > p.most {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] > 127 || !p.class[s[i]] {
			return false
		}
	}
	return true
}
