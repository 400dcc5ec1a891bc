package api

import (
	"bytes"
	"encoding/json"
	"errors"
)

// SettingText is the value of a topic's setting, as text. In JSON it may be a string, a number or a
// boolean, since that is how people write them.
type SettingText string

// UnmarshalJSON takes a string, a number or a boolean.
func (v *SettingText) UnmarshalJSON(b []byte) error {
	b = bytes.TrimSpace(b)
	switch {
	case len(b) == 0:
		return errors.New("a setting's value is missing")
	case b[0] == '"':
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		*v = SettingText(s)
		return nil
	case b[0] == '{' || b[0] == '[' || b[0] == 'n':
		return errors.New("a setting's value must be a string, a number or a boolean")
	default:
		*v = SettingText(b)
		return nil
	}
}
