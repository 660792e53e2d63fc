package render

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
)

// A settingsDoc is the document of kdiag explain settings.
type settingsDoc struct {
	checks.Header
	kubelet.Explanation
}

// KubeletSettings prints what a kubelet runs with: as a table; a single setting, and with Details each, with its text.
func KubeletSettings(w io.Writer, h checks.Header, e kubelet.Explanation, o Options) error {
	return write(w, o, view{settingsDoc{h, e}, func(p *page) { p.settings(h, e) }, func(m briefLine) string {
		other := slices.DeleteFunc(slices.Clone(e.Settings), func(s kubelet.Explained) bool { return s.Value == s.Default })
		return m.cut(units.Count(len(other), "setting") + " not at the default; kdiag explain settings NAME explains one")
	}})
}

func (p *page) settings(h checks.Header, e kubelet.Explanation) {
	if e.PID > 0 {
		from := append([]string{"its arguments"}, e.Files...)
		p.text(0, p.prose("Settings of "+e.Process+" (pid "+strconv.Itoa(e.PID)+"), from "+units.List(from)+
			"; * is not the default."))
	}
	p.list("", span{"?", warn}, h.Problems, len(h.Problems))
	p.blank()
	brief := len(e.Settings) > 1 && !p.details
	if brief {
		p.settingsTable(e.Settings)
	}
	for _, s := range e.Settings {
		if !brief {
			p.heading(p.clean(s.Name))
			for _, pair := range [][2]string{
				{"value", s.Value},
				{"from", s.From + " " + s.Where},
				{"default", s.Default},
				{"versions", s.Versions},
				{"field", s.Field},
				{"flag", s.Flag},
			} {
				p.pair(pair[0], p.prose(pair[1]))
			}
			p.text(2, p.prose(s.Means))
		}
	}
	constants := table{indent: 2, align: "lll"}
	for _, c := range e.Constants {
		constants.add(c.Name, c.Value, c.Means)
	}
	if len(e.Constants) > 0 {
		p.heading("Not to be set")
		p.table(constants)
	}
	if brief {
		p.blank()
		p.text(0, "More: kdiag explain settings NAME shows what one means for PLEG and NotReady, --details all.")
	}
}

// settingsTable writes the name and value of each setting, where it comes from, and the default. A map has a row for
// each key, and of what is too wide, paths above all, the end is shown.
func (p *page) settingsTable(all []kubelet.Explained) {
	const names, between, least = 39, 14, 13 // columns: the longest name, what is between value and default, a value
	t := table{align: "llll", head: []string{"  name", "value", "from", "default"}}
	add := func(name span, value, from, standard string) {
		row := []span{name, plain(value), plain(from), plain(standard)}
		for _, cell := range []*span{&row[1], &row[3]} {
			width := max(least, (p.wrap-names-between)/2)
			if cell.text = p.clean(cell.text); columns(cell.text) > width {
				_, end := head(cell.text, columns(cell.text)-width+3, len(cell.text))
				cell.text = "..." + end
			}
		}
		t.rows = append(t.rows, row)
	}
	for _, s := range all {
		name, keys := plain("  "+p.clean(s.Name)), map[string][2]string{}
		for i, text := range []string{s.Value, s.Default} {
			for pair := range strings.SplitSeq(text, ", ") {
				if key, value, ok := strings.Cut(pair, ": "); ok {
					both := keys[key]
					both[i] = value
					keys[key] = both
				}
			}
		}
		if s.Value != s.Default {
			name = span{"* " + p.clean(s.Name), strong}
		}
		if len(keys) == 0 {
			add(name, s.Value, s.From, s.Default)
			continue
		}
		add(name, "", s.From, "")
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			add(plain("    "+p.clean(key)), cmp.Or(keys[key][0], "-"), "", cmp.Or(keys[key][1], "-"))
		}
	}
	p.table(t)
}
