package fake

import (
	"encoding/json"
	"fmt"
	"time"
)

// String returns the duration as Go writes it, such as "250ms".
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes the duration as a text such as "250ms".
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads a text such as "250ms" or "1h30m". A bare number is an error: it does not say its unit.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("duration %s is not a text such as \"250ms\"", data)
	}
	parsed, err := parseDuration(text)
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}

func parseDuration(text string) (Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 250ms or 1h30m", text)
	}
	return Duration(d), nil
}
