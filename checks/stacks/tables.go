package stacks

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"
)

//go:embed tables.yaml
var tablesYAML []byte

// tables returns what tables.yaml says; the comments there explain the rules.
var tables = sync.OnceValue(loadTables)

type allTables struct {
	Locks, Idle, Loops []string
	Waits              []*waitRule
	Holds              []*holdRule
	Pictures           []*picture

	count    int              // of ids
	ids      map[string][]int // of the names
	prefixes map[string][]int // of those that end with *, without it
	lock     int              // the id of all Locks
	idle     int              // the id of all Idle
	loops    [][]int          // Loops: ids of the function, and of the one that has to be in the stack too
}

type waitRule struct {
	Word, Text string
	Lower      bool // the method in the text
	All        []string
	all        []int
}

type holdRule struct {
	Object, Word string
	Same, Shared bool
	Waits, Holds string
	waits, holds int
}

type picture struct {
	Picture
	Frames, Words []string
	Blocks, Waits bool
	frames        []int
}

func loadTables() *allTables {
	t := &allTables{ids: map[string][]int{}, prefixes: map[string][]int{}}
	if err := yaml.UnmarshalStrict(tablesYAML, t); err != nil {
		panic("tables.yaml: " + err.Error()) // it is a part of the program
	}
	t.lock, t.idle = t.id(strings.Join(t.Locks, "|")), t.id(strings.Join(t.Idle, "|"))
	for _, name := range t.Loops {
		t.loops = append(t.loops, t.each(strings.Split(name, "&")))
	}
	for _, r := range t.Waits {
		r.all = t.each(r.All)
	}
	for _, r := range t.Holds {
		r.waits, r.holds = t.id(r.Waits), t.id(r.Holds)
	}
	for _, p := range t.Pictures {
		p.frames = t.each(p.Frames)
	}
	return t
}

// id returns the id of names with | between them; a function has it that is one of them.
func (t *allTables) id(names string) int {
	t.count++
	for name := range strings.SplitSeq(names, "|") {
		if prefix, ok := strings.CutSuffix(name, "*"); ok {
			t.prefixes[prefix] = append(t.prefixes[prefix], t.count)
		} else {
			t.ids[name] = append(t.ids[name], t.count)
		}
	}
	return t.count
}

func (t *allTables) each(names []string) []int {
	ids := make([]int, len(names))
	for i, name := range names {
		ids[i] = t.id(name)
	}
	return ids
}

// wait returns what the functions of a stack show that it waits for, or nothing.
func (t *allTables) wait(p *place) (word, on string) {
	for _, r := range t.Waits {
		if !p.has.hasAll(r.all) {
			continue
		}
		method := ""
		for _, f := range p.fns {
			if f.has.get(r.all[len(r.all)-1]) {
				method = f.base[strings.LastIndexByte(f.base, '.')+1:]
			}
		}
		if r.Lower {
			method = strings.ToLower(method)
		}
		return r.Word, strings.Replace(r.Text, "%s", method, 1)
	}
	return "", ""
}

// A function is what the tables know of one, by its name.
type function struct {
	short  string // container.(*statusStorage).Get.func1
	base   string // without what the compiler adds for closures
	std    bool   // of Go's library
	method bool   // with a pointer receiver: its first argument is an address
	has    idSet
	loops  [][]int // as in allTables
}

// An idSet is a set of ids.
type idSet [2]uint64

func (s *idSet) get(id int) bool { return s[id/64]&(1<<(id%64)) != 0 }

func (s *idSet) hasAll(ids []int) bool {
	return !slices.ContainsFunc(ids, func(id int) bool { return !s.get(id) })
}

// function returns what the tables know of a function with this full name.
func (t *allTables) function(name string) *function {
	f := &function{short: Short(name)}
	f.base = closure.ReplaceAllString(f.short, "")
	first, _, path := strings.Cut(name, "/")
	if !path { // net.(*conn).Read, main.main
		first, _, _ = strings.Cut(name, ".")
	}
	f.std = !strings.Contains(first, ".") && first != "main"
	f.method = strings.Contains(f.base, ".(*")
	ids := t.ids[f.base]
	for prefix, more := range t.prefixes {
		if strings.HasPrefix(f.base, prefix) {
			ids = append(slices.Clip(ids), more...)
		}
	}
	for _, id := range ids {
		f.has[id/64] |= 1 << (id % 64)
	}
	for _, r := range t.loops {
		if f.has.get(r[0]) {
			f.loops = append(f.loops, r)
		}
	}
	return f
}

// Short returns the name of a function without its import path: container.(*statusStorage).Get.
func Short(fn string) string {
	end := len(fn)
	if i := strings.IndexAny(fn, "(["); i >= 0 {
		end = i // a path behind it is that of a type argument
	}
	return fn[strings.LastIndexByte(fn[:end], '/')+1:]
}

// closure matches what the compiler adds to the names of closures and wrappers, and type arguments.
var closure = regexp.MustCompile(`(\.(func|gowrap|deferwrap)|-range)[0-9].*$|-fm$|\[\.\.\.\]`)
