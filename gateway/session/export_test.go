package session

// CheckFrame understands a frame and says what is wrong with it.
func CheckFrame(raw []byte) error {
	f, err := parseFrame(raw)
	if err != nil {
		return err
	}
	return f.command().err
}
