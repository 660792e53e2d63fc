package redact

import (
	"regexp"
	"strings"
	"sync"
)

// A hit is a literal of a rule.
type hit struct {
	rule   *Rule
	length int
}

// An automaton finds all literals of all rules in one pass, in any case (Aho and Corasick, 1975). A text without any
// costs one look-up in a table a byte. A state is the part of literals that was read.
type automaton struct {
	class [256]uint8 // of a byte: 0 if it is in no literal
	next  [][64]uint16
	hits  [][]hit
	found []bool // by state: it has hits
}

var matcher = sync.OnceValue(func() *automaton {
	a := &automaton{}
	states, prefixes, chars := map[string]uint16{}, []string{}, ""
	literals := map[string][]*Rule{}
	for i := range Rules {
		rule := &Rules[i]
		if rule.Pattern != "" {
			rule.re = regexp.MustCompile("^(?:" + rule.Pattern + ")")
		}
		for _, literal := range rule.literals() {
			literal = strings.ToLower(literal)
			literals[literal] = append(literals[literal], rule)
			for n := range len(literal) + 1 {
				if _, ok := states[literal[:n]]; !ok {
					states[literal[:n]] = uint16(len(prefixes))
					prefixes = append(prefixes, literal[:n])
				}
			}
			for i := range literal {
				if char := literal[i : i+1]; !strings.Contains(chars, char) {
					chars += char
					class := uint8(len(chars))
					a.class[char[0]], a.class[strings.ToUpper(char)[0]] = class, class
				}
			}
		}
	}
	n := len(prefixes)
	a.next, a.hits, a.found = make([][64]uint16, n), make([][]hit, n), make([]bool, n)
	for state, prefix := range prefixes {
		for i := range chars {
			read := prefix + chars[i:i+1]
			for _, ok := states[read]; !ok; _, ok = states[read] {
				read = read[1:]
			}
			a.next[state][i+1] = states[read]
		}
		for i := range prefix {
			for _, rule := range literals[prefix[i:]] {
				a.hits[state], a.found[state] = append(a.hits[state], hit{rule, len(prefix) - i}), true
			}
		}
	}
	return a
})

// first returns where the first literal in b ends, or -1.
func (a *automaton) first(b []byte) int {
	state := uint16(0)
	for i, c := range b {
		if state = a.next[state][a.class[c]&63]; a.found[state] {
			return i
		}
	}
	return -1
}
