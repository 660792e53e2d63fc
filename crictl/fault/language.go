package fault

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kdiag/kdiag/crictl/fake"
)

// Parse reads one fault as a person types it: the RPC, then what goes wrong, with whom and when, between commas. The RPC is a
// name or a pattern. A value with a comma in it is written in double quotes, as in Go.
//
//	ContainerStatus,hang,pod=web-*,from=10s,until=1m
//	RunPodSandbox,error="Unavailable: not now, later",first=3
//	ListContainers,oversize=17MiB
//
// The error says in one line what is wrong.
func Parse(text string) (fake.Fault, error) {
	words, err := split(text)
	if err != nil {
		return fake.Fault{}, err
	}
	f := fake.Fault{RPC: words[0]}
	switch {
	case f.RPC == "":
		return fake.Fault{}, errors.New("the RPC is missing; it comes first")
	case strings.Contains(f.RPC, "="):
		return fake.Fault{}, fmt.Errorf("it begins with %q; the RPC comes first", f.RPC)
	}
	seen := map[string]bool{}
	for _, word := range words[1:] {
		key, value, assigned := strings.Cut(word, "=")
		if seen[key] {
			return fake.Fault{}, fmt.Errorf("%s is given twice", key)
		}
		seen[key] = true
		if err := set(&f, key, value, assigned); err != nil {
			return fake.Fault{}, err
		}
	}
	return f, f.Validate()
}

// split cuts at the commas that are not in double quotes, and trims blanks.
func split(text string) ([]string, error) {
	var words []string
	quoted, from := false, 0
	for i := 0; i < len(text); i++ {
		switch {
		case quoted && text[i] == '\\':
			i++
		case text[i] == '"':
			quoted = !quoted
		case text[i] == ',' && !quoted:
			words, from = append(words, strings.TrimSpace(text[from:i])), i+1
		}
	}
	if quoted {
		return nil, errors.New("a quote is not closed")
	}
	return append(words, strings.TrimSpace(text[from:])), nil
}

// set sets what one word means.
func set(f *fake.Fault, key, value string, assigned bool) error {
	if flag, ok := flags(f)[key]; ok {
		if assigned {
			return fmt.Errorf("%s stands alone, without a value", key)
		}
		*flag = true
		return nil
	}
	if !assigned {
		return fmt.Errorf("%q is none of hang, thaw, drop, sandbox, and has no value", key)
	}
	if strings.HasPrefix(value, `"`) {
		unquoted, err := strconv.Unquote(value)
		if err != nil {
			return fmt.Errorf("%s: %s is not a quoted text", key, value)
		}
		value = unquoted
	}
	if value == "" {
		return fmt.Errorf("%s: the value is missing", key)
	}
	var err error
	switch {
	case texts(f)[key] != nil:
		*texts(f)[key] = value
	case durations(f)[key] != nil:
		var d time.Duration
		if d, err = time.ParseDuration(value); err != nil {
			return fmt.Errorf("%s: %q is not a duration such as 250ms or 1h30m", key, value)
		}
		*durations(f)[key] = fake.Duration(d)
	case key == "oversize":
		f.Oversize, err = size(value)
	case key == "first":
		f.First, err = count(key, value)
	case key == "after":
		f.After, err = count(key, value)
	default:
		err = fmt.Errorf("there is no %q", key)
	}
	return err
}

func flags(f *fake.Fault) map[string]*bool {
	return map[string]*bool{"hang": &f.Hang, "thaw": &f.Thaw, "drop": &f.Drop, "sandbox": &f.Object.Sandbox}
}

func texts(f *fake.Fault) map[string]*string {
	return map[string]*string{
		"error": &f.Error, "id": &f.Object.ID, "namespace": &f.Object.Namespace, "pod": &f.Object.Pod, "container": &f.Object.Container,
	}
}

func durations(f *fake.Fault) map[string]*fake.Duration {
	return map[string]*fake.Duration{"delay": &f.Delay, "from": &f.From, "until": &f.Until, "every": &f.Every, "for": &f.For}
}

func count(key, value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%s: %q is not a number of calls", key, value)
	}
	return n, nil
}

// size reads 17825792, 17408KiB or 17MiB.
func size(value string) (int, error) {
	digits, unit := value, 1
	for suffix, bytes := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20} {
		if rest, ok := strings.CutSuffix(value, suffix); ok {
			digits, unit = rest, bytes
		}
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n <= 0 || n > fake.MaxOversize/unit {
		return 0, fmt.Errorf("oversize: %q is not a size such as 17MiB, of at most %d MiB", value, fake.MaxOversize>>20)
	}
	return n * unit, nil
}

// Format writes a fault so that Parse reads it.
func Format(f fake.Fault) string {
	words := []string{f.RPC}
	for _, key := range []string{"hang", "thaw", "drop"} {
		if *flags(&f)[key] {
			words = append(words, key)
		}
	}
	add := func(key, value string, given bool) {
		if !given {
			return
		}
		if quoted := strconv.Quote(value); strings.Contains(value, ",") || value != strings.TrimSpace(value) || quoted != `"`+value+`"` {
			value = quoted
		}
		words = append(words, key+"="+value)
	}
	add("delay", f.Delay.String(), f.Delay != 0)
	add("error", f.Error, f.Error != "")
	add("oversize", strconv.Itoa(f.Oversize), f.Oversize != 0)
	for _, key := range []string{"id", "namespace", "pod", "container"} {
		add(key, *texts(&f)[key], *texts(&f)[key] != "")
	}
	if f.Object.Sandbox {
		words = append(words, "sandbox")
	}
	for _, key := range []string{"from", "until", "every", "for"} {
		add(key, durations(&f)[key].String(), *durations(&f)[key] != 0)
	}
	add("first", strconv.Itoa(f.First), f.First != 0)
	add("after", strconv.Itoa(f.After), f.After != 0)
	return strings.Join(words, ",")
}
