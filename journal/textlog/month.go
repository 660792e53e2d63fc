package textlog

import (
	"bytes"
	"math"
	"strings"

	"github.com/kdiag/kdiag/journal/klog"
)

// monthNames are the abbreviated months as strftime's %b writes them, without dots and in lower case, by number. journalctl uses the
// locale's; Chinese, Japanese and Korean count them.
func monthNames(name string) int {
	lists := [...]string{
		"jan feb mar apr may jun jul aug sep oct nov dec",
		"jan feb mär apr mai jun jul aug sep okt nov dez",
		"jänner feber märz april mai juni juli august sept okt nov dez",
		"janv févr mars avril mai juin juil août sept oct nov déc",
		"ene feb mar abr may jun jul ago sep oct nov dic",
		"gen feb mar apr mag giu lug ago set ott nov dic",
		"jan fev mar abr mai jun jul ago set out nov dez",
		"jan feb mrt apr mei jun jul aug sep okt nov dec",
		"jan feb mars april maj juni juli aug sept okt nov des",
		"sty lut mar kwi maj cze lip sie wrz paź lis gru",
		"led úno bře dub kvě čen čec srp zář říj lis pro",
		"янв фев мар апр май июн июл авг сен окт ноя дек",
		"янв фев мар апр мая июн июл авг сент окт нояб дек",
		"січ лют бер кві тра чер лип сер вер жов лис гру",
		"oca şub mar nis may haz tem ağu eyl eki kas ara",
		"jan febr márc ápr máj jún júl aug szept okt nov dec",
		"tammi helmi maalis huhti touko kesä heinä elo syys loka marras joulu",
	}
	for _, list := range lists {
		for i, m := range strings.Fields(list) {
			if m == name {
				return i + 1
			}
		}
	}
	return 0
}

// month returns the number of a month's name in any of the languages, 0 if it is none. "9月" and "9월" are September.
func month(b []byte) int {
	if len(b) > 24 {
		return 0
	}
	if n := englishMonth(b); n > 0 {
		return n
	}
	for _, sign := range [...]string{"月", "월"} {
		if n, ok := bytes.CutSuffix(b, []byte(sign)); ok {
			if v, rest, ok := number(n); ok && len(rest) == 0 && v >= 1 && v <= 12 {
				return v
			}
		}
	}
	return monthNames(strings.TrimSuffix(strings.ToLower(string(b)), "."))
}

// englishMonth is month for the names that nearly all logs have.
func englishMonth(b []byte) int {
	if len(b) != 3 {
		return 0
	}
	switch string(b) {
	case "Jan":
		return 1
	case "Feb":
		return 2
	case "Mar":
		return 3
	case "Apr":
		return 4
	case "May":
		return 5
	case "Jun":
		return 6
	case "Jul":
		return 7
	case "Aug":
		return 8
	case "Sep":
		return 9
	case "Oct":
		return 10
	case "Nov":
		return 11
	case "Dec":
		return 12
	}
	return 0
}

// parseMonthDay parses "Jul  3 19:59:01.293068", as syslog and journalctl write it, also with a year behind the day. A
// month in a language that is not known makes a stamp that is not Known.
func parseMonthDay(b []byte) (s klog.Stamp, rest []byte, ok bool) {
	n := bytes.IndexByte(b[:min(len(b), 25)], ' ')
	if n < 2 {
		return s, nil, false
	}
	day, rest, ok := number(bytes.TrimLeft(b[n:], " "))
	if !ok || day < 1 || day > 31 || len(rest) < 9 || rest[0] != ' ' {
		return s, nil, false
	}
	rest = rest[1:]
	year := klog.BaseYear
	if y, after, ok := number(rest); ok && y >= 1970 && y < 10000 && len(after) > 8 && after[0] == ' ' {
		s.Year, year, rest = true, y, after[1:]
	}
	clock, rest, ok := klog.Clock(rest)
	if !ok || (len(rest) > 0 && rest[0] != ' ' && rest[0] != ':') {
		return s, nil, false
	}
	m := month(b[:n])
	if m == 0 && bytes.ContainsAny(b[:n], "0123456789:=[]{}()\"/") {
		return s, nil, false
	}
	if m > 0 {
		s.Known, s.Micros = true, klog.Date(year, m, day)+clock
	}
	return s, trimBlanks(bytes.TrimPrefix(rest, []byte(":"))), true
}

func trimBlanks(b []byte) []byte { return bytes.TrimLeft(b, " \t") }

func digit(c byte) bool { return c >= '0' && c <= '9' }

// number parses leading decimal digits, at most 18.
func number(b []byte) (n int, rest []byte, ok bool) {
	i := 0
	for ; i < len(b) && digit(b[i]); i++ {
		if i == 18 || n > math.MaxInt/10-1 { // the second where an int has 32 bits
			return 0, nil, false
		}
		n = n*10 + int(b[i]-'0')
	}
	return n, b[i:], i > 0
}
