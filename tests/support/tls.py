"""A certificate for tests, made out to `gpu-box` and good until 2126."""

from pathlib import Path

KEY = """-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgnFCLbZbconywII5X
FENR2yNMJduHNcJ3+MJyIOHVYKWhRANCAARrtNc28CuYJKkSB4AzRebg1d4WvCE9
fTx5Pojb3knRn74fiEKXZX3I8t+4ONUhuHsXB2c4tQ2YD7fKuZSXKK5z
-----END PRIVATE KEY-----
"""
CERT = """-----BEGIN CERTIFICATE-----
MIIBkDCCATWgAwIBAgIUEqcGtZ23MHVZ0zmc7QafRAz9fhYwCgYIKoZIzj0EAwIw
EjEQMA4GA1UEAwwHZ3B1LWJveDAgFw0yNjExMjEwNjA0MjJaGA8yMTI2MTAyODA2
MDQyMlowEjEQMA4GA1UEAwwHZ3B1LWJveDBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABGu01zbwK5gkqRIHgDNF5uDV3ha8IT19PHk+iNveSdGfvh+IQpdlfcjy37g4
1SG4excHZzi1DZgPt8q5lJcornOjZzBlMB0GA1UdDgQWBBTJmwcv8ilG7ORwABXo
I/AuyzqwXTAfBgNVHSMEGDAWgBTJmwcv8ilG7ORwABXoI/AuyzqwXTAPBgNVHRMB
Af8EBTADAQH/MBIGA1UdEQQLMAmCB2dwdS1ib3gwCgYIKoZIzj0EAwIDSQAwRgIh
AJXqdhgGbvGyUa06EFce6mfih82nWPfneZC/SGaQ54qmAiEA55tPg1xGbZe3ChAf
B4aT3HeKDL2kjpATKqb8DrQNWd4=
-----END CERTIFICATE-----
"""


def certificate(folder: Path) -> tuple[str, str]:
    """Writes the files; gives the paths of certificate and key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_text(CERT)
    key.write_text(KEY)
    return str(cert), str(key)
