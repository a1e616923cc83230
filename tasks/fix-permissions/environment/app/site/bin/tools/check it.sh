echo check
